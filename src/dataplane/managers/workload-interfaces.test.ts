import { expect, test } from "bun:test";
import type { DataplaneReport, ProtoWorkloadEndpoint } from "../../calc/index.ts";
import { memoryRtnetlink } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import { mainTableOwnership } from "../routes/ownership.ts";
import { RouteTable } from "../routes/route-table.ts";
import { StaleConnections } from "../routes/stale-connections.ts";
import { StaticNeighbours } from "../routes/static-neighbours.ts";
import { EndpointRegistry } from "./endpoint-registry.ts";
import { EndpointStatus } from "./endpoint-status.ts";
import type { MigrationPhase } from "./live-migrations.ts";
import {
  WorkloadInterfaces,
  type WorkloadInterfacesConfig,
  type WorkloadInterfacesDeps,
} from "./workload-interfaces.ts";

const config: WorkloadInterfacesConfig = {
  versions: [4, 6],
  floatingIps: false,
  routeProtocol: 3,
  routeSource: {},
  routePriority: { 4: 1024, 6: 1024 },
};

/** A host in memory with one workload's interface, and what the managers of endpoints make of it. */
function open(
  given: Partial<WorkloadInterfacesConfig> & {
    readonly withRoutes?: boolean;
    readonly migrations?: NonNullable<WorkloadInterfacesDeps["migrations"]>;
  } = {},
) {
  const kernel = memoryRtnetlink();
  for (const name of ["eth0", "eth1", "cali1"]) {
    kernel.links.create({ name, type: { kind: "dummy" } });
    kernel.links.set(name, { up: true });
  }
  const isWorkload = (name: string) => name.startsWith("cali");
  const registry = new EndpointRegistry(isWorkload);
  const exclusive = { removeExternalRoutes: true, isWorkload, isBgpPeer: () => false, ownsIpip: true };
  const ownership = mainTableOwnership({ deviceRouteProtocol: given.routeProtocol ?? 3, ...exclusive });
  const flushed: IpAddress[] = [];
  const connections = new StaleConnections(async (addresses) => void flushed.push(...addresses));
  const tables =
    given.withRoutes === false
      ? []
      : ([4, 6] as const).map(
          (version) =>
            new RouteTable({
              ...{ version, table: 254, routes: kernel.routes, ownership, logger: silentLogger },
              flushConnections: (addresses) => connections.flush(version, addresses),
            }),
        );
  const neighbours = new StaticNeighbours(kernel.neighbours, silentLogger);
  const written: string[] = [];
  const workloads = new WorkloadInterfaces({
    config: { ...config, ...given },
    registry,
    isWorkload,
    sysctls: { read: () => "1", write: (path, value) => void written.push(`${path.join("/")}=${value}`) },
    addresses: kernel.addresses,
    routes: tables,
    neighbours,
    connections,
    migrations: given.migrations,
    logger: silentLogger,
  });
  const status = new EndpointStatus(registry, (name) => workloads.isConfigured(name));
  const send = (...messages: readonly ManagerMessage[]) => {
    for (const message of messages) {
      for (const table of tables) table.onInterface(message);
      neighbours.onInterface(message);
      for (const manager of [registry, workloads, status]) manager.onUpdate(message);
    }
  };
  const reports: DataplaneReport[] = [];
  const round = async () => {
    registry.resolve?.();
    await workloads.apply();
    for (const table of tables) await table.apply();
    await connections.apply();
    neighbours.apply();
    reports.push(...status.reports());
    return reports.splice(0);
  };
  const link = (name: string, state: "up" | "down" | "gone" = "up"): ManagerMessage => ({
    type: "interfaceState",
    ...{ name, index: kernel.links.get(name)?.index ?? 99, state },
  });
  send(link("eth0"), link("cali1"));
  const index = kernel.links.get("cali1")?.index ?? 0;
  return { kernel, send, round, link, index, neighbours, written, takeFlushed: () => flushed.splice(0).sort() };
}

const endpoint = (more: Partial<ProtoWorkloadEndpoint> = {}): ManagerMessage => ({
  type: "workloadEndpointUpdate",
  id: { orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" },
  endpoint: {
    ...{ state: "active", name: "cali1", mac: "", profileIds: [], tiers: [], ipv4Nat: [], ipv6Nat: [] },
    ipv4Nets: ["10.65.0.2/32" as Cidr],
    ipv6Nets: ["fd65::2/128" as Cidr],
    ...{ allowSpoofedSourcePrefixes: [], annotations: {}, qosPolicies: [], isIstioAmbient: false },
    liveMigrationRole: "none",
    ...more,
  },
});
const peering = (v4: string, v6: string): ManagerMessage => ({
  type: "globalBgpConfigUpdate",
  ...{ serviceClusterCidrs: [], serviceExternalCidrs: [], serviceLoadBalancerCidrs: [] },
  ...{ localWorkloadPeeringIpV4: v4, localWorkloadPeeringIpV6: v6 },
});

test("FD-131 workload routes carry the configured source address, protocol and priority", async () => {
  const source = { 4: "192.0.2.1" as IpAddress, 6: "2001:db8::1" as IpAddress };
  const { kernel, send, round } = open({ routeSource: source, routeProtocol: 97, routePriority: { 4: 700, 6: 800 } });
  send(endpoint());
  await round();
  expect(kernel.routes.list({ version: 4, table: 254, protocol: 97 })).toMatchObject([
    { destination: "10.65.0.2/32", source: "192.0.2.1", priority: 700, scope: "link" },
  ]);
  expect(kernel.routes.list({ version: 6, table: 254, protocol: 97 })).toMatchObject([
    { destination: "fd65::2/128", source: "2001:db8::1", priority: 800 },
  ]);
});

test("FD-129 with RouteSyncDisabled, no route is written or deleted", async () => {
  const { kernel, send, round, index } = open({ withRoutes: false });
  kernel.routes.add({ destination: "10.65.0.2/32" as Cidr, link: index, protocol: 4 });
  send(endpoint({ ipv4Nets: ["10.65.0.3/32" as Cidr] }));
  await round();
  expect(kernel.routes.list({ version: 4, table: 254 }).map((route) => route.destination)).toEqual([
    "10.65.0.2/32" as Cidr,
  ]);
  expect(kernel.neighbours.list({ version: 4, link: index })).toEqual([]);
});

test("a workload interface is configured before its endpoint is known; other interfaces are not", async () => {
  const { round, written } = open();
  await round();
  expect(written).toEqual(["net/ipv6/conf/cali1/accept_ra=0", "net/ipv4/neigh/cali1/proxy_delay=0"]);
});

test("FD-128 the interface of a local BGP peer has the peering addresses, as long as the workload is a peer", async () => {
  const { kernel, send, round, index } = open();
  const onInterface = () =>
    ([4, 6] as const).flatMap((version) =>
      kernel.addresses.list({ version, link: index }).map(({ address, scope }) => `${address} ${scope}`),
    );
  send(peering("169.254.7.1", "fe80:7::1"), endpoint());
  await round();
  expect(onInterface()).toEqual([]);
  send(endpoint({ localBgpPeer: { bgpPeerName: "tor" } as NonNullable<ProtoWorkloadEndpoint["localBgpPeer"]> }));
  await round();
  expect(onInterface()).toEqual(["169.254.7.1 link", "fe80:7::1 link"]);
  send(peering("169.254.7.9", ""));
  await round();
  expect(onInterface()).toEqual(["169.254.7.9 link"]);
  send(endpoint());
  await round();
  expect(onInterface()).toEqual([]);
});

test("FD-113 a host endpoint without an interface has an error; it is down if one of its interfaces is down", async () => {
  const { send, round, link } = open();
  const host = (endpointId: string, name: string, ips: string[] = []): ManagerMessage => ({
    type: "hostEndpointUpdate",
    endpointId,
    endpoint: {
      ...{ name, profileIds: [], tiers: [], untrackedTiers: [], preDnatTiers: [], forwardTiers: [] },
      expectedIpv4Addrs: ips as IpAddress[],
      ...{ expectedIpv6Addrs: [], qosPolicies: [] },
    } as never,
  });
  send(host("named", "eth0"), host("missing", "eth9"), host("both", "", ["192.0.2.1", "192.0.2.2"]));
  const addresses = (name: string, ...list: string[]): ManagerMessage => ({
    type: "interfaceAddresses",
    name,
    addresses: new Set(list as IpAddress[]),
  });
  send(link("eth1"), addresses("eth1", "192.0.2.1"));
  const statuses = async () =>
    Object.fromEntries(
      (await round()).flatMap((r) => (r.type === "hostEndpointStatus" ? [[r.endpointId, r.status]] : [])),
    );
  expect(await statuses()).toEqual({ named: "up", missing: "error", both: "up" });
  expect(await statuses()).toEqual({}); // reported once
  send(link("eth1", "down"));
  expect(await statuses()).toEqual({ both: "down" });
  send({ type: "interfaceAddresses", name: "eth1", addresses: undefined }, link("eth1", "gone"));
  expect(await statuses()).toEqual({ both: "error" });
  send({ type: "hostEndpointRemove", endpointId: "both" });
  expect(await round()).toEqual([{ type: "hostEndpointStatusRemove", endpointId: "both" }]);
});

test("FD-113 a workload is up if its link is running, it is active and its interface is configured", async () => {
  const { send, round, link } = open();
  const statuses = async () => (await round()).flatMap((r) => (r.type === "workloadEndpointStatus" ? [r.status] : []));
  send(endpoint());
  expect(await statuses()).toEqual(["up"]);
  send(link("cali1", "down"));
  expect(await statuses()).toEqual(["down"]);
  send(link("cali1", "up"));
  expect(await statuses()).toEqual(["up"]);
  send(endpoint({ state: "inactive" }));
  expect(await statuses()).toEqual(["down"]);
});

test("FD-121 every address of an active workload has a route, and a permanent ARP entry if its MAC address is known", async () => {
  const { kernel, send, round, link, index, neighbours } = open();
  const routes = () =>
    ([4, 6] as const).flatMap((version) =>
      kernel.routes.list({ version, table: 254, link: index }).map(({ destination, scope, protocol, gateway }) => {
        expect([protocol, gateway]).toEqual([3, undefined]);
        return `${destination}${version === 4 ? ` ${scope}` : ""}`;
      }),
    );
  const entries = () =>
    ([4, 6] as const).flatMap((version) =>
      kernel.neighbours.list({ version, link: index }).map(({ address, mac, state }) => `${address} ${mac} ${state}`),
    );
  const two = { ipv4Nets: ["10.65.0.2/32", "10.65.0.3/32"] as Cidr[], ipv6Nets: ["fd65::2/128" as Cidr] };
  const mac = "02:00:00:00:00:02";
  send(endpoint({ ...two, mac }));
  await round();
  expect(routes().sort()).toEqual(["10.65.0.2/32 link", "10.65.0.3/32 link", "fd65::2/128"]);
  expect(entries()).toEqual([`10.65.0.2 ${mac} permanent`, `10.65.0.3 ${mac} permanent`]); // not for IPv6
  // One address is removed with its entry, and the MAC address of the other changes.
  send(endpoint({ mac: "02:00:00:00:00:09", ipv6Nets: [] }));
  await round();
  expect([routes(), entries()]).toEqual([["10.65.0.2/32 link"], ["10.65.0.2 02:00:00:00:00:09 permanent"]]);
  // Somebody's change is put right by the next look; what the kernel forgot when the link went down, when it is back.
  kernel.neighbours.set({ link: index, address: "10.65.0.2" as IpAddress, mac: "02:00:00:00:00:66", state: "stale" });
  neighbours.queueResync();
  await round();
  expect(entries()).toEqual(["10.65.0.2 02:00:00:00:00:09 permanent"]);
  kernel.links.set("cali1", { up: false });
  kernel.neighbours.delete({ link: index, address: "10.65.0.2" as IpAddress });
  send(link("cali1", "down"));
  await round();
  expect([routes(), entries()]).toEqual([[], ["10.65.0.2 02:00:00:00:00:09 permanent"]]); // written also while it is down
  kernel.links.set("cali1", { up: true });
  send(link("cali1", "up"));
  await round();
  expect(routes()).toEqual(["10.65.0.2/32 link"]);
  // Without a MAC address there are no entries; an inactive workload has no routes.
  send(endpoint({ ipv6Nets: [] }));
  await round();
  expect([routes(), entries()]).toEqual([["10.65.0.2/32 link"], []]);
  send(endpoint({ state: "inactive", mac }));
  await round();
  expect([routes(), entries()]).toEqual([[], []]);
});

test("FD-122 workload routes have the priority of their family; routes with another priority of other programs stay", async () => {
  const { kernel, send, round, index } = open({ routePriority: { 4: 1024, 6: 700 } });
  kernel.routes.add({ destination: "10.65.0.2/32" as Cidr, link: 2, protocol: 4, priority: 50 });
  const priorities = () =>
    ([4, 6] as const).flatMap((version) =>
      kernel.routes
        .list({ version, table: 254 })
        .map(({ destination, priority, link: at }) => `${destination} ${priority} ${at === index ? "ours" : "theirs"}`),
    );
  send(endpoint());
  await round();
  expect(priorities().sort()).toEqual(["10.65.0.2/32 1024 ours", "10.65.0.2/32 50 theirs", "fd65::2/128 700 ours"]);
  send({ type: "workloadEndpointRemove", id: { orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" } });
  await round();
  expect(priorities()).toEqual(["10.65.0.2/32 50 theirs"]);
});

test("FD-127 an expected machine has no routes, an arrived one has elevated routes, also for its floating address", async () => {
  let phase: MigrationPhase = "expected";
  const changed = new Set<string>();
  const enter = (next: MigrationPhase) => {
    phase = next;
    changed.add("cali1");
  };
  const takeChanged = () => {
    const taken = new Set(changed);
    changed.clear();
    return taken;
  };
  const { kernel, send, round, index } = open({
    migrations: { phaseOf: (name) => (name === "cali1" ? phase : "settled"), takeChanged },
    elevatedPriority: { 4: 512, 6: 600 },
    floatingIps: true,
  });
  const routes = () =>
    ([4, 6] as const)
      .flatMap((version) => kernel.routes.list({ version, table: 254, link: index }))
      .map(({ destination, priority }) => `${destination} ${priority}`)
      .sort();
  const nat = [{ external: "203.0.113.5" as IpAddress, internal: "10.65.0.2" as IpAddress }];
  send(endpoint({ ipv4Nat: nat }));
  await round();
  expect(routes()).toEqual([]);
  for (const better of ["arrived", "converging"] as const) {
    enter(better);
    await round();
    expect(routes()).toEqual(["10.65.0.2/32 512", "203.0.113.5/32 512", "fd65::2/128 600"]);
  }
  enter("settled");
  await round();
  expect(routes()).toEqual(["10.65.0.2/32 1024", "203.0.113.5/32 1024", "fd65::2/128 1024"]);
  enter("expected"); // it comes back after it left
  await round();
  expect(routes()).toEqual([]);
});

const removal: ManagerMessage = {
  type: "workloadEndpointRemove",
  id: { orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" },
};
const both = ["10.65.0.2", "fd65::2"] as IpAddress[];

for (const withRoutes of [true, false]) {
  const mode = withRoutes ? "" : ", with RouteSyncDisabled";

  test(`FD-126 connections of a removed endpoint are flushed in either order of events${mode}`, async () => {
    for (const order of ["interface first", "endpoint first", "together"] as const) {
      const { send, round, link, takeFlushed } = open({ withRoutes });
      send(endpoint());
      await round();
      const [first, second] =
        order === "endpoint first" ? [removal, link("cali1", "gone")] : [link("cali1", "gone"), removal];
      send(first);
      if (order !== "together") await round();
      expect([order, takeFlushed()]).toEqual([order, order === "endpoint first" ? both : []]);
      send(second);
      await round();
      expect([order, takeFlushed()]).toEqual([order, order === "endpoint first" ? [] : both]);
    }
  });

  test(`FD-126 an endpoint that changes one address keeps the connections of the other${mode}`, async () => {
    const { send, round, takeFlushed } = open({ withRoutes });
    send(endpoint());
    await round();
    send(endpoint({ ipv4Nets: ["10.65.0.9/32" as Cidr] }));
    await round();
    expect(takeFlushed()).toEqual(["10.65.0.2" as IpAddress]);
  });

  test(`FD-126 an endpoint whose interface goes down, is replaced, or is repeated keeps its connections${mode}`, async () => {
    const { send, round, link, takeFlushed } = open({ withRoutes });
    send(endpoint());
    await round();
    for (const state of ["down", "up", "gone"] as const) {
      send(link("cali1", state));
      await round();
    }
    send({ type: "interfaceState", name: "cali1", index: 77, state: "up" });
    await round();
    send(removal, endpoint());
    await round();
    expect(takeFlushed()).toEqual([]);
    send(endpoint({ name: "cali2" })); // the endpoint moves to another interface
    await round();
    expect([...new Set(takeFlushed())]).toEqual(both);
  });
}

test("FD-127 an endpoint that is expected to arrive from another node does not own its addresses yet", async () => {
  let phase: MigrationPhase = "expected";
  const { send, round, takeFlushed } = open({
    migrations: { phaseOf: () => phase, takeChanged: () => new Set(["cali1"]) },
  });
  send(endpoint());
  await round();
  send(removal); // the migration is cancelled: the machine still runs on the other node
  await round();
  expect(takeFlushed()).toEqual([]);
  send(endpoint());
  await round();
  phase = "arrived";
  await round();
  expect(takeFlushed()).toEqual([]);
  send(removal);
  await round();
  expect(takeFlushed()).toEqual(both);
});
