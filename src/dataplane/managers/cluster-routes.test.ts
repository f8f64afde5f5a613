import { expect, test } from "bun:test";
import { ROUTE_TYPE, type RouteUpdate } from "../../calc/index.ts";
import { memoryRtnetlink } from "../../kernel/index.ts";
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { createClusterNetwork } from "../cluster-network.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import { mainTableOwnership } from "../routes/ownership.ts";
import { RouteTable } from "../routes/route-table.ts";
import { type ClusterRouteKind, ClusterRoutes } from "./cluster-routes.ts";
import { EndpointRegistry } from "./endpoint-registry.ts";

const NODE = { 4: "192.0.2.10", 6: "2001:db8::10" } as const;
const DEVICES: Readonly<Record<ClusterRouteKind, Readonly<Record<IpVersion, string | undefined>>>> = {
  vxlan: { 4: "vxlan.calico", 6: "vxlan-v6.calico" },
  ipip: { 4: "tunl0", 6: undefined },
  "no-encap": { 4: undefined, 6: undefined },
};

/** The node `node-a` in memory, and the routes it has, as `ip route` would say them. */
function open(kind: ClusterRouteKind, version: IpVersion = 4) {
  const kernel = memoryRtnetlink();
  const device = DEVICES[kind][version];
  const names = ["eth0", "eth1", ...(device === undefined ? [] : [device])];
  for (const name of names) {
    kernel.links.create({ name, type: { kind: "dummy" } });
    kernel.links.set(name, { up: true });
  }
  const registry = new EndpointRegistry(() => false);
  const exclusive = { removeExternalRoutes: true, isWorkload: () => false, isBgpPeer: () => false, ownsIpip: true };
  const table = new RouteTable({
    version,
    table: 254,
    routes: kernel.routes,
    ownership: mainTableOwnership({ deviceRouteProtocol: 3, ...exclusive }),
    logger: silentLogger,
  });
  const protocol = kind === "vxlan" ? 3 : 80;
  const routes = new ClusterRoutes({
    ...{ kind, version, hostname: "node-a", table, registry, exclusiveProtocol: 80 },
    tunnel: device === undefined ? undefined : { interfaceName: device, mtu: 1450, protocol },
  });
  const addresses = (name: string, ...list: string[]): ManagerMessage => ({
    type: "interfaceAddresses",
    name,
    addresses: new Set(list as IpAddress[]),
  });
  const nameOf = (index: number | undefined) =>
    index === undefined ? "nowhere" : (kernel.links.get(index)?.name ?? "gone");
  const send = (...messages: readonly ManagerMessage[]): string[] => {
    for (const message of messages) {
      table.onInterface(message);
      registry.onUpdate(message);
      routes.onUpdate(message);
    }
    registry.resolve?.();
    routes.apply();
    table.apply();
    return kernel.routes
      .list({ version, table: 254 })
      .map((route) =>
        [
          `${route.type === "unicast" ? "" : `${route.type} `}${route.destination}`,
          ...(route.gateway === undefined ? [] : [`via ${route.gateway}`]),
          ...(route.type === "unicast" ? [`dev ${nameOf(route.link)}`] : []),
          `proto ${route.protocol}`,
          ...(route.onlink ? ["onlink"] : []),
          ...(route.metrics?.mtu === undefined ? [] : [`mtu ${route.metrics.mtu}`]),
        ].join(" "),
      )
      .sort();
  };
  for (const name of names)
    send({ type: "interfaceState", name, index: kernel.links.get(name)?.index ?? 0, state: "up" });
  return { send, addresses };
}

const remote = (dst: string, more: Partial<RouteUpdate> = {}): RouteUpdate => ({
  type: "routeUpdate",
  types: ROUTE_TYPE.remoteWorkload,
  poolType: "vxlan",
  dst: dst as Cidr,
  dstNodeName: "node-b",
  dstNodeIp: (dst.includes(":") ? "2001:db8::11" : "192.0.2.11") as IpAddress,
  ...{ sameSubnet: false, natOutgoing: false, localWorkload: false, borrowed: false },
  ...more,
});
const own = (dst: string, more: Partial<RouteUpdate> = {}): RouteUpdate =>
  remote(dst, {
    types: ROUTE_TYPE.localWorkload,
    dstNodeName: "node-a",
    dstNodeIp: (dst.includes(":") ? NODE[6] : NODE[4]) as IpAddress,
    ...more,
  });
const tunnelEnd = (node: string, n: number, parents: Readonly<Record<IpVersion, string>>): ManagerMessage => ({
  type: "vtepUpdate",
  node,
  mac: `66:00:00:00:00:0${n}`,
  ipv4Addr: `10.65.${n}.0`,
  parentDeviceIp: parents[4],
  macV6: `66:00:00:00:06:0${n}`,
  ipv6Addr: `fd65:${n}::`,
  parentDeviceIpv6: parents[6],
});
const OWN_END = tunnelEnd("node-a", 1, NODE);
const OTHER_END = tunnelEnd("node-b", 2, { 4: "192.0.2.11", 6: "2001:db8::11" });
const metadata = (hostname: string, ipv4Addr: string, ipv6Addr = ""): ManagerMessage => ({
  type: "hostMetadataUpdate",
  ...{ hostname, ipv4Addr, ipv6Addr, asNumber: "", labels: {} },
});

for (const [version, far, near, tunnel, direct] of [
  [
    4,
    "10.65.2.0/26",
    "10.65.3.0/26",
    "10.65.2.0/26 via 10.65.2.0 dev vxlan.calico proto 3 onlink mtu 1450",
    "10.65.3.0/26 via 192.0.2.11 dev eth0 proto 80 onlink",
  ],
  [
    6,
    "fd65:2::/122",
    "fd65:3::/122",
    "fd65:2::/122 via fd65:2:: dev vxlan-v6.calico proto 3 onlink mtu 1450",
    "fd65:3::/122 via 2001:db8::11 dev eth0 proto 80 onlink",
  ],
] as const) {
  const { isV6, id } = version === 6 ? { isV6: true, id: "FD-144 " } : { isV6: false, id: "" };
  const onTunnel = direct
    .replace(isV6 ? "via 2001:db8::11 dev eth0" : "via 192.0.2.11 dev eth0", tunnel.match(/via \S+ dev \S+/)?.[0] ?? "")
    .replace("proto 80 onlink", "proto 3 onlink mtu 1450");

  test(`FD-143 ${id}IPv${version}: routes are direct in the same subnet and use the tunnel otherwise; without a parent interface all use the tunnel`, () => {
    const { send, addresses } = open("vxlan", version);
    // Neither tunnel address is known.
    expect(send(remote(far), remote(near, { sameSubnet: true }))).toEqual([]);
    expect(send(OTHER_END)).toEqual([tunnel, onTunnel].sort());
    expect(send(OWN_END)).toEqual([tunnel, onTunnel].sort()); // no interface has the address of this node yet
    expect(send(addresses("eth0", NODE[version]))).toEqual([tunnel, direct].sort());
    // The node's address moves to another interface: straight routes follow, tunnelled ones stay.
    const moved = [tunnel, direct.replace("eth0", "eth1")].sort();
    expect(send(addresses("eth0"), addresses("eth1", NODE[version]))).toEqual(moved);
    // The node is in another subnet now.
    expect(send(remote(near))).toEqual([tunnel, onTunnel].sort());
    expect(send(remote(near, { sameSubnet: true }))).toEqual(moved);
    // Its tunnel address is removed: only direct routes stay.
    expect(send({ type: "vtepRemove", node: "node-b" })).toEqual([direct.replace("eth0", "eth1")]);
  });

  test(`FD-146 ${id}IPv${version}: a block of this node gets a blackhole route, single addresses do not`, () => {
    const { send } = open("vxlan", version);
    const [block, single] = isV6 ? ["fd65:1::/122", "fd65:1::7/128"] : ["10.65.1.0/26", "10.65.1.7/32"];
    const blackhole = `blackhole ${block} proto 80`;
    expect(send(own(block), own(single))).toEqual([blackhole]);
    expect(send(own(single, { localWorkload: true }))).toEqual([blackhole]);
    // The block moves to another node, and is removed.
    expect(send(OTHER_END, remote(block))).toEqual([
      isV6
        ? `${block} via fd65:2:: dev vxlan-v6.calico proto 3 onlink mtu 1450`
        : `${block} via 10.65.2.0 dev vxlan.calico proto 3 onlink mtu 1450`,
    ]);
    expect(send({ type: "routeRemove", dst: block as Cidr })).toEqual([]);
    // Routes to local workloads are written by another manager.
    expect(send(own(block, { localWorkload: true }))).toEqual([]);
  });
}

test("FD-144 routes of the other family are ignored", () => {
  const { send } = open("vxlan", 6);
  expect(send(OWN_END, OTHER_END, remote("10.65.2.0/26"), own("10.65.1.0/26"))).toEqual([]);
});

for (const [version, dst, node] of [
  [4, "10.65.2.0/26", "192.0.2.11"],
  [6, "fd65:2::/122", "2001:db8::11"],
] as const)
  test(`FD-145 IPv${version} without encapsulation: routes use the node as gateway, in any subnet, when the parent interface is known`, () => {
    const { send, addresses } = open("no-encap", version);
    const plain = { poolType: "no-encap" } as const;
    expect(send(remote(dst, plain))).toEqual([]);
    expect(send(metadata("node-a", `${NODE[4]}/24`, `${NODE[6]}/64`))).toEqual([]);
    expect(send(addresses("eth1", NODE[version]))).toEqual([`${dst} via ${node} dev eth1 proto 80 onlink`]);
    // The route update has no node address; it is taken from the host metadata.
    expect(send(remote(dst, { ...plain, dstNodeIp: "" as IpAddress }))).toEqual([]);
    const other = version === 4 ? "192.0.2.77" : "2001:db8::77";
    expect(send(metadata("node-b", version === 4 ? other : "", version === 6 ? other : ""))).toEqual([
      `${dst} via ${other} dev eth1 proto 80 onlink`,
    ]);
    expect(send({ type: "hostMetadataRemove", hostname: "node-b", ipv4Addr: "" })).toEqual([]);
    // A pool of another kind has its own manager.
    expect(send(remote(dst, { poolType: "vxlan" }))).toEqual([]);
    expect(send(own(dst, plain))).toEqual([`blackhole ${dst} proto 80`]);
  });

test("FD-141 IPIP routes use the tunnel with the node as gateway, or are direct in the same subnet, with the exclusive protocol", () => {
  const { send, addresses } = open("ipip");
  const ipip = { poolType: "ipip" } as const;
  send(metadata("node-a", "192.0.2.10/24"), addresses("eth0", NODE[4]));
  expect(send(remote("10.65.2.0/26", ipip), remote("10.65.3.0/26", { ...ipip, sameSubnet: true }))).toEqual([
    "10.65.2.0/26 via 192.0.2.11 dev tunl0 proto 80 onlink mtu 1450",
    "10.65.3.0/26 via 192.0.2.11 dev eth0 proto 80 onlink",
  ]);
});

test("FD-142 a borrowed tunnel address is on the link, a borrowed workload address uses a gateway", () => {
  const { send } = open("vxlan");
  const borrowed = { borrowed: true } as const;
  expect(
    send(
      OTHER_END,
      remote("10.65.2.0/32", { types: ROUTE_TYPE.remoteTunnel, ...borrowed }),
      remote("10.65.1.9/32", borrowed),
      remote("10.65.2.1/32", { types: ROUTE_TYPE.remoteTunnel }), // inside its node's block: that route leads there
    ),
  ).toEqual([
    "10.65.1.9/32 via 10.65.2.0 dev vxlan.calico proto 3 onlink mtu 1450",
    "10.65.2.0/32 dev vxlan.calico proto 3 mtu 1450",
  ]);
});

// Types and node of an address that one node borrowed from a block of another, as the route resolver reports them.
const BOTH = ROUTE_TYPE.localWorkload | ROUTE_TYPE.remoteWorkload;
const lentCases: readonly {
  readonly kind: ClusterRouteKind;
  readonly version: IpVersion;
  readonly sameSubnet: boolean;
  readonly route: string;
}[] = [
  { kind: "vxlan", version: 4, sameSubnet: false, route: "via 10.65.2.0 dev vxlan.calico proto 3 onlink mtu 1450" },
  { kind: "vxlan", version: 4, sameSubnet: true, route: "via 192.0.2.11 dev eth0 proto 80 onlink" },
  { kind: "vxlan", version: 6, sameSubnet: false, route: "via fd65:2:: dev vxlan-v6.calico proto 3 onlink mtu 1450" },
  { kind: "vxlan", version: 6, sameSubnet: true, route: "via 2001:db8::11 dev eth0 proto 80 onlink" },
  { kind: "ipip", version: 4, sameSubnet: false, route: "via 192.0.2.11 dev tunl0 proto 80 onlink mtu 1450" },
  { kind: "ipip", version: 4, sameSubnet: true, route: "via 192.0.2.11 dev eth0 proto 80 onlink" },
  { kind: "no-encap", version: 4, sameSubnet: false, route: "via 192.0.2.11 dev eth0 proto 80 onlink" },
  { kind: "no-encap", version: 6, sameSubnet: false, route: "via 2001:db8::11 dev eth0 proto 80 onlink" },
];
for (const { kind, version, sameSubnet, route } of lentCases)
  test(`FD-142 ${kind} IPv${version}, ${sameSubnet ? "same" : "other"} subnet: an address of this node's block that another node borrowed is routed to that node`, () => {
    const { send, addresses } = open(kind, version);
    const [block, lent] = version === 6 ? ["fd65:1::/122", "fd65:1::7/128"] : ["10.65.1.0/26", "10.65.1.7/32"];
    const pool = { poolType: kind, sameSubnet } as const;
    send(OWN_END, OTHER_END, metadata("node-a", `${NODE[4]}/24`, `${NODE[6]}/64`), addresses("eth0", NODE[version]));
    const blackhole = `blackhole ${block} proto 80`;
    expect(send(own(block, pool), remote(lent, { types: BOTH, borrowed: true, ...pool }))).toEqual(
      [`${lent} ${route}`, blackhole].sort(),
    );
    // The address returns to a workload of this node; the workload's own route is written by another manager.
    expect(send(own(lent, { localWorkload: true, ...pool }))).toEqual([blackhole]);
  });

for (const kind of ["vxlan", "ipip", "no-encap"] as const)
  test(`FD-142 ${kind}: a local workload with an address borrowed from another node's block gets no cluster route`, () => {
    const { send, addresses } = open(kind);
    send(OWN_END, OTHER_END, metadata("node-a", `${NODE[4]}/24`), addresses("eth0", NODE[4]));
    const borrowed = { types: BOTH, borrowed: true, poolType: kind, sameSubnet: true } as const;
    expect(send(own("10.65.2.9/32", { localWorkload: true, ...borrowed }))).toEqual([]);
    // The same before the workload's endpoint is known: only the block refers to this node.
    expect(send(own("10.65.2.9/32", borrowed))).toEqual([]);
  });

test("FD-129 with RouteSyncDisabled, the tunnel and its neighbours are written anyway", () => {
  const kernel = memoryRtnetlink();
  kernel.links.create({ name: "eth0", type: { kind: "dummy" } });
  kernel.links.set("eth0", { up: true });
  const registry = new EndpointRegistry(() => false);
  const { managers, links } = createClusterNetwork({
    parameters: { VXLANVNI: 4096, VXLANPort: 4789, DeviceRouteProtocol: 3, ProgramClusterRoutes: "Disabled" } as never,
    facts: { hostname: "node-a", vxlanEnabled: true, vxlanEnabledV6: true } as never,
    mtus: { vxlan: 1450, vxlanV6: 1430 } as never,
    ...{ kernel, registry, versions: [4], tables: undefined, logger: silentLogger },
  });
  const addresses = new Set([NODE[4] as IpAddress]);
  const index = kernel.links.get("eth0")?.index ?? 0;
  const messages: ManagerMessage[] = [
    { type: "interfaceState", name: "eth0", index, state: "up" },
    { type: "interfaceAddresses", name: "eth0", addresses },
    OWN_END,
    OTHER_END,
  ];
  for (const message of messages) {
    registry.onUpdate(message);
    for (const manager of managers) manager.onUpdate(message);
  }
  registry.resolve?.();
  const { signal } = new AbortController();
  for (const manager of managers) manager.apply?.(signal);
  for (let round = 0; round < 2; round++) for (const link of links) link.apply(signal);
  const device = kernel.links.get("vxlan.calico");
  expect(kernel.links.get("vxlan-v6.calico")).toBeUndefined();
  expect(kernel.neighbours.listFdb(device?.index ?? 0).map(({ mac, destination }) => [mac, destination])).toEqual([
    ["66:00:00:00:00:02", "192.0.2.11"],
  ]);
  expect(kernel.routes.list({ version: 4, table: 254 }).filter(({ protocol }) => protocol === 3)).toEqual([]);
});
