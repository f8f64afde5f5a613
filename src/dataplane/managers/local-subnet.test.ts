import { expect, test } from "bun:test";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import { selectNode, LocalSubnetNeighbours } from "./local-subnet.ts";

function open(given: { readonly fails?: number } = {}) {
  let fails = given.fails ?? 0;
  let now = 0;
  const expected = new Set<string>();
  const answered = new Map<string, ReadonlySet<IpAddress>>();
  let announced = 0;
  const manager = new LocalSubnetNeighbours({
    hostname: "node-a",
    versions: [4, 6],
    isWorkload: (name) => name.startsWith("cali"),
    isExpected: (name) => expected.has(name),
    network: {
      subnetsOf: (name) => (name === "eth0" ? ["192.0.2.0/24", "2001:db8::/64", "192.0.2.10/32"] : []) as Cidr[],
      open: (version, name) => {
        if (fails-- > 0) throw new Error("not permitted");
        return {
          setAddresses: (addresses) => void answered.set(`${name} ${version}`, addresses),
          announceAll: () => void announced++,
          [Symbol.dispose]: () => void answered.delete(`${name} ${version}`),
        };
      },
    },
    refreshMs: 120_000,
    logger: silentLogger,
    now: () => now,
  });
  return {
    manager,
    expected,
    wait: (ms: number) => (now += ms),
    announced: () => announced,
    send: (...messages: readonly ManagerMessage[]) => {
      for (const message of messages) manager.onUpdate(message);
      return manager.apply();
    },
    answers: () => Object.fromEntries([...answered].map(([key, set]) => [key, [...set].sort() as string[]])),
  };
}
const up = (name: string): ManagerMessage => ({ type: "interfaceState", name, index: 2, state: "up" });
const pool = (cidr: string, vxlanMode = "Never"): ManagerMessage => ({
  type: "poolUpdate",
  ...{ id: cidr.replace("/", "-"), cidr: cidr as Cidr, masquerade: false, ipipMode: "Never", vxlanMode },
  allowedUses: ["Workload"],
});
const pod = (addresses: readonly string[], role: "none" | "source" | "target" = "none"): ManagerMessage => ({
  type: "workloadEndpointUpdate",
  id: { orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" },
  endpoint: {
    ...{ state: "active", name: "cali1", liveMigrationRole: role },
    ipv4Nets: addresses.filter((a) => !a.includes(":")).map((a) => `${a}/32` as Cidr),
    ipv6Nets: addresses.filter((a) => a.includes(":")).map((a) => `${a}/128` as Cidr),
  } as never,
});
const node = (hostname: string, ipv6Addr = "2001:db8::1"): ManagerMessage => ({
  type: "hostMetadataUpdate",
  ...{ hostname, ipv4Addr: "192.0.2.1", ipv6Addr, asNumber: "", labels: {} },
});
const service = (name: string, ip: string, serviceType = "LoadBalancer"): ManagerMessage => ({
  type: "serviceUpdate",
  ...{ name, namespace: "ns", serviceType, clusterIps: [], loadBalancerIp: "", externalIps: [], ports: [] },
  loadBalancerIngressIps: [ip],
});
const POOLS = [pool("192.0.2.128/25"), pool("2001:db8::8000/113")];

test("FD-130 the node replies for a workload address in a pool without encapsulation and in the subnet of an interface", () => {
  const m = open();
  m.send(up("eth0"), up("eth1"), up("cali1"), up("lo"), ...POOLS, pod(["192.0.2.200", "2001:db8::8001"]));
  expect(m.answers()).toEqual({ "eth0 4": ["192.0.2.200"], "eth0 6": ["2001:db8::8001"] });
  m.send(pod(["192.0.2.20", "198.51.100.7"])); // in no pool, and in no subnet
  expect(m.answers()).toEqual({});
  m.send(pool("192.0.2.0/25", "Always"), pod(["192.0.2.20"])); // a tunnel's pool
  expect(m.answers()).toEqual({});
  m.send(pool("192.0.2.0/25"));
  expect(m.answers()).toEqual({ "eth0 4": ["192.0.2.20"] });
  m.send({ type: "interfaceState", name: "eth0", index: 2, state: "down" });
  expect(m.answers()).toEqual({});
});

test("FD-130 the node on which a migrating machine runs replies for it", () => {
  const m = open();
  m.send(up("eth0"), ...POOLS, pod(["192.0.2.200"], "source"));
  expect(m.answers()).toEqual({});
  m.expected.add("cali1");
  m.send(pod(["192.0.2.200"], "target"));
  expect(m.answers()).toEqual({});
  m.expected.clear();
  m.send(); // the round its arrival brings
  expect(m.answers()).toEqual({ "eth0 4": ["192.0.2.200"] });
});

test("FD-130 exactly one node replies for a load balancer address, and others take over the addresses of a removed node", () => {
  const nodes = ["node-a", "node-b", "node-c"];
  const addresses = Array.from({ length: 120 }, (_, i) => `192.0.2.${130 + i}` as IpAddress);
  const m = open();
  m.send(up("eth0"), ...POOLS, ...nodes.map((name) => node(name)));
  m.send(...addresses.map((address, i) => service(`s${i}`, address)));
  const before = new Map(addresses.map((address) => [address, selectNode(address, nodes)]));
  const mine = addresses.filter((address) => before.get(address) === "node-a");
  expect(m.answers()).toEqual({ "eth0 4": [...mine].sort() });
  expect(mine.length).toBeGreaterThan(20);
  expect(mine.length).toBeLessThan(60);
  m.send({ type: "hostMetadataRemove", hostname: "node-c", ipv4Addr: "" });
  const now = new Set(m.answers()["eth0 4"]);
  for (const address of addresses) {
    if (before.get(address) !== "node-c") expect(now.has(address)).toBe(before.get(address) === "node-a");
  }
  expect(now.size).toBeGreaterThan(mine.length);
  // Services that change their type or are removed; and a node without the family is not selected.
  m.send(service("s0", addresses[0] ?? "", "ClusterIP"), { type: "serviceRemove", name: "s1", namespace: "ns" });
  expect(m.answers()["eth0 4"]?.includes(addresses[0] ?? "")).toBe(false);
  m.send(node("node-a", ""), service("six", "2001:db8::8009"));
  expect(m.answers()["eth0 6"]).toBeUndefined();
});

test("FD-130 all addresses are announced at the interval, and a responder that cannot be opened is retried", () => {
  const m = open({ fails: 1 });
  expect(m.send(up("eth0"), ...POOLS, pod(["192.0.2.200"]))).toEqual({ againInMs: 1000 });
  expect(m.answers()).toEqual({});
  expect(m.send()).toEqual({ againInMs: 120_000 });
  expect(m.answers()).toEqual({ "eth0 4": ["192.0.2.200"] });
  m.wait(119_999);
  m.send();
  expect(m.announced()).toBe(0);
  m.wait(1);
  expect(m.send()).toEqual({ againInMs: 120_000 });
  expect(m.announced()).toBe(1);
  m.manager[Symbol.dispose]();
  expect(m.answers()).toEqual({});
});
