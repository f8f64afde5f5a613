import { expect, test } from "bun:test";
import fc from "fast-check";
import { type DataplaneReport, ROUTE_TYPE } from "../../calc/index.ts";
import { memoryRtnetlink, MemoryWireguard, NetlinkError, type Rule } from "../../kernel/index.ts";
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { createLogger } from "../../lib/log/log.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import { createEncryption, removeUnusedDevices, type WireguardParameters, wireguardTable } from "./encryption.ts";

const MARK = 0x200000;
const defaults: WireguardParameters = {
  WireguardEnabled: true,
  WireguardEnabledV6: false,
  WireguardInterfaceName: "wireguard.cali",
  WireguardInterfaceNameV6: "wg-v6.cali",
  WireguardListeningPort: 51820,
  WireguardListeningPortV6: 51821,
  WireguardHostEncryptionEnabled: false,
  WireguardRoutingRulePriority: 99,
  WireguardPersistentKeepAlive: 0,
  WireguardThreadingEnabled: false,
  RouteTableRange: undefined,
  RouteTableRanges: [],
  RouteSyncDisabled: false,
  DeviceRouteProtocol: 3,
};
const key = (letter: string) => btoa(letter.repeat(32));

/** One node's encryption on a kernel in memory; a round is what the apply loop does. */
function open(given: Partial<WireguardParameters> = {}, kernel = memoryRtnetlink(), hasWireguard = true) {
  const devices = new MemoryWireguard(kernel.links);
  const threads: string[] = [];
  const settings: string[] = [];
  const reports: DataplaneReport[] = [];
  const lines: string[] = [];
  const parameters = { ...defaults, ...given };
  const state = { hasWireguard };
  const links = {
    list: () => kernel.links.list(),
    get: (which: string | number) => kernel.links.get(which),
    set: kernel.links.set.bind(kernel.links),
    delete: kernel.links.delete.bind(kernel.links),
    create: (link: Parameters<typeof kernel.links.create>[0]) => {
      if (!state.hasWireguard) throw new NetlinkError(`create ${link.name}`, "EOPNOTSUPP");
      kernel.links.create(link);
    },
  };
  const logger = createLogger({ level: "debug", write: ({ level, message }) => lines.push(`${level} ${message}`) });
  const encryption = createEncryption({
    parameters,
    hostname: "me",
    versions: [4, 6],
    mtus: { wireguard: 1440, wireguardV6: 1420 },
    mark: MARK,
    kernel: {
      ...kernel,
      links,
      wireguard: {
        open: () => (state.hasWireguard ? devices : undefined),
        setThreadedNapi: (name, on) => threads.push(`${name} ${on}`),
      },
    },
    sysctls: { read: () => "0", write: (path, value) => settings.push(`${path.join(".")}=${value}`) },
    logger,
  });
  const known = new Map<string, string>();
  const send = (...messages: readonly ManagerMessage[]) => {
    for (const message of messages) {
      for (const table of encryption.tables) table.onInterface(message);
      for (const manager of encryption.managers) manager.onUpdate(message);
    }
  };
  const watch = () => {
    for (const link of kernel.links.list()) {
      const now = `${link.index} ${link.isRunning}`;
      if (known.get(link.name) === now) continue;
      known.set(link.name, now);
      send({ type: "interfaceState", name: link.name, index: link.index, state: link.isRunning ? "up" : "down" });
    }
    for (const name of known.keys())
      if (kernel.links.get(name) === undefined) {
        send({ type: "interfaceState", name, index: Number(known.get(name)?.split(" ")[0]), state: "gone" });
        known.delete(name);
      }
  };
  const round = () => {
    watch();
    for (const manager of encryption.managers) void manager.apply?.(new AbortController().signal);
    for (const part of [...encryption.links, ...encryption.tables, ...encryption.rules])
      void part.apply(new AbortController().signal);
    for (const manager of encryption.managers) reports.push(...(manager.reports?.() ?? []));
  };
  const settle = () => {
    for (let i = 0; i < 3; i++) round();
  };
  const rules = (version: IpVersion): Rule[] => kernel.rules.list(version).filter((rule) => rule.table === 1);
  const routes = (version: IpVersion) =>
    kernel.routes
      .list({ version, table: 1 })
      .map(({ type, destination, link }) =>
        type === "throw" ? `throw ${destination}` : `${destination} ${kernel.links.get(link ?? 0)?.name}`,
      )
      .sort();
  const publish = (version: IpVersion = 4) => {
    settle();
    const name = version === 4 ? parameters.WireguardInterfaceName : parameters.WireguardInterfaceNameV6;
    send(wireguard("me", devices.get(name)?.publicKey ?? "", "", version));
    settle();
  };
  const resync = () => {
    for (const part of [...encryption.links, ...encryption.tables, ...encryption.rules]) part.queueResync();
    settle();
  };
  return {
    kernel,
    devices,
    threads,
    settings,
    reports,
    lines,
    parameters,
    state,
    ...{ send, round, settle, rules, routes, publish, resync, logger },
  };
}

const host = (hostname: string, ipv4Addr: string, ipv6Addr = ""): ManagerMessage => ({
  type: "hostMetadataUpdate",
  ...{ hostname, ipv4Addr, ipv6Addr, asNumber: "", labels: {} },
});
const wireguard = (
  hostname: string,
  publicKey: string,
  interfaceAddr = "",
  ipVersion: IpVersion = 4,
): ManagerMessage =>
  publicKey === ""
    ? { type: "wireguardRemove", ipVersion, hostname }
    : { type: "wireguardUpdate", ipVersion, hostname, publicKey, interfaceAddr: interfaceAddr as IpAddress };
const route = (dst: string, dstNodeName: string, types: number = ROUTE_TYPE.remoteWorkload): ManagerMessage => ({
  type: "routeUpdate",
  ...{ types, poolType: "no-encap", dst: dst as Cidr, dstNodeName, dstNodeIp: "", sameSubnet: true },
  ...{ natOutgoing: false, localWorkload: false, borrowed: false },
});
const twoPeers = [
  host("me", "192.0.2.1/24", "2001:db8::1"),
  host("b", "192.0.2.2/24", "2001:db8::2"),
  host("c", "192.0.2.3/24", "2001:db8::3"),
  wireguard("b", key("b"), "10.65.2.1"),
  route("10.65.1.0/26", "me", ROUTE_TYPE.localWorkload),
  route("10.65.2.0/26", "b"),
  route("10.65.3.0/26", "c"),
];

test("FD-150 the device gets a key, port, mark, address and MTU, and the key is published", () => {
  const node = open();
  node.send(...twoPeers, wireguard("me", key("x"), "10.65.1.9"));
  node.settle();
  const link = node.kernel.links.get("wireguard.cali");
  expect(link).toMatchObject({ kind: "wireguard", mtu: 1440, isUp: true });
  const device = node.devices.get("wireguard.cali");
  expect(device).toMatchObject({ port: 51820, mark: MARK });
  expect(node.kernel.addresses.list({ version: 4, link: link?.index ?? 0 }).map((a) => a.address)).toEqual([
    "10.65.1.9" as IpAddress,
  ]);
  expect(node.reports).toEqual([
    { type: "wireguardStatus", ipVersion: 4, publicKey: device?.publicKey ?? "" },
    { type: "wireguardStatus", ipVersion: 6, publicKey: "" },
  ]);
  // After a restart, the key of the existing device is kept.
  const before = device?.publicKey;
  const again = open({}, node.kernel);
  again.devices.set("wireguard.cali", { privateKey: key("p") });
  const kept = again.devices.get("wireguard.cali")?.publicKey;
  again.send(...twoPeers);
  again.settle();
  expect(again.devices.get("wireguard.cali")?.publicKey).toBe(kept);
  expect(before).toBeDefined();
});

test("FD-150 traffic to nodes with WireGuard is encrypted, other traffic uses the main table", () => {
  const node = open();
  node.send(...twoPeers);
  node.settle();
  // The key of this node is not published yet, so nothing is sent through the device.
  expect(node.routes(4)).toEqual(["throw 10.65.1.0/26", "throw 10.65.2.0/26", "throw 10.65.3.0/26"]);
  node.publish();
  expect(node.devices.get("wireguard.cali")?.peers).toMatchObject([
    { publicKey: key("b"), endpoint: { address: "192.0.2.2", port: 51820 }, allowed: ["10.65.2.0/26"] },
  ]);
  expect(node.routes(4)).toEqual(["10.65.2.0/26 wireguard.cali", "throw 10.65.1.0/26", "throw 10.65.3.0/26"]);
  expect(node.rules(4)).toMatchObject([{ priority: 99, inverted: true, mark: { value: MARK, mask: MARK } }]);
  expect(node.rules(6)).toEqual([]);
  // The third node gets a key, a prefix moves, and a node is removed.
  node.send(wireguard("c", key("c")), route("10.65.2.0/26", "c"));
  node.settle();
  expect(node.routes(4)).toEqual(["10.65.2.0/26 wireguard.cali", "10.65.3.0/26 wireguard.cali", "throw 10.65.1.0/26"]);
  expect(node.devices.get("wireguard.cali")?.peers.map((peer) => [peer.publicKey, [...peer.allowed].sort()])).toEqual([
    [key("b"), []],
    [key("c"), ["10.65.2.0/26" as Cidr, "10.65.3.0/26" as Cidr]],
  ]);
  node.send(wireguard("c", ""), { type: "hostMetadataRemove", hostname: "b", ipv4Addr: "192.0.2.2" });
  node.settle();
  expect(node.devices.get("wireguard.cali")?.peers).toEqual([]);
  expect(node.routes(4)).toEqual(["throw 10.65.1.0/26", "throw 10.65.2.0/26", "throw 10.65.3.0/26"]);
});

test("FD-150 two nodes with the same key are not peers; when one key is removed, the other node is a peer", () => {
  const node = open();
  node.send(...twoPeers, wireguard("c", key("b")));
  node.publish();
  expect(node.devices.get("wireguard.cali")?.peers).toEqual([]);
  node.send(wireguard("b", ""));
  node.settle();
  expect(node.devices.get("wireguard.cali")?.peers).toMatchObject([{ endpoint: { address: "192.0.2.3" } }]);
  node.send(wireguard("c", btoa("\0".repeat(32))));
  node.settle();
  expect(node.devices.get("wireguard.cali")?.peers).toEqual([]);
});

test("a node with an invalid key is not a peer, and does not affect other peers", () => {
  const node = open();
  for (const text of ["rubbish", `${key("c")}\n`, key("c").slice(1), "=".repeat(44)]) {
    node.send(...twoPeers, wireguard("c", text));
    node.publish();
    expect(node.devices.get("wireguard.cali")?.peers).toMatchObject([{ publicKey: key("b") }]);
  }
});

test("FD-150 changed peers, routes and rules are restored, and a deleted device is created with a new key", () => {
  const node = open();
  node.send(...twoPeers);
  node.publish();
  const want = [node.routes(4), node.rules(4), node.devices.get("wireguard.cali")?.peers];
  node.devices.set("wireguard.cali", { replacePeers: true, set: [{ publicKey: key("z"), allowed: [] }] });
  for (const rule of node.rules(4)) node.kernel.rules.delete(rule);
  const stranger: Rule = { version: 4, priority: 99, action: "table", table: 1, mark: { value: 7, mask: 7 } };
  node.kernel.rules.add(stranger);
  node.kernel.routes.delete({ destination: "10.65.2.0/26" as Cidr, table: 1 });
  node.resync();
  expect([node.routes(4), node.rules(4).filter((r) => r.inverted), node.devices.get("wireguard.cali")?.peers]).toEqual(
    want,
  );
  expect(node.rules(4)).toContainEqual(expect.objectContaining({ mark: { value: 7, mask: 7 } })); // of another program
  expect(node.lines).toContain("info another program changed WireGuard peers; restoring them");
  expect(node.lines).toContain("info another program changed routing rules; restored them");
  const old = node.devices.get("wireguard.cali")?.publicKey;
  node.kernel.links.delete("wireguard.cali");
  node.settle();
  const renewed = node.devices.get("wireguard.cali")?.publicKey;
  expect(renewed).not.toBe(old);
  expect(node.reports.at(-1)).toEqual({ type: "wireguardStatus", ipVersion: 4, publicKey: renewed ?? "" });
  expect(node.routes(4)).toContain("throw 10.65.2.0/26"); // until the others know the new key
  node.publish();
  expect(node.routes(4)).toContain("10.65.2.0/26 wireguard.cali");
});

test("FD-150 without WireGuard in the kernel, the key is empty and this is logged once; a module that is loaded later is used", () => {
  const node = open({}, memoryRtnetlink(), false);
  node.send(...twoPeers);
  node.settle();
  expect(node.reports).toContainEqual({ type: "wireguardStatus", ipVersion: 4, publicKey: "" });
  expect([node.routes(4), node.rules(4)]).toEqual([[], []]);
  expect(node.lines.filter((line) => line.includes("does not support WireGuard"))).toHaveLength(1);
  node.state.hasWireguard = true;
  node.resync();
  expect(node.reports.at(-1)).toMatchObject({ ipVersion: 4, publicKey: expect.stringMatching(/.{44}/) as string });
  expect(node.rules(4)).toHaveLength(1);
});

test("FD-150 if WireGuard is disabled, its device, rule, routes and published key are removed, and other objects stay", () => {
  const node = open();
  node.send(...twoPeers);
  node.publish();
  node.kernel.links.create({ name: "wg-v6.cali", type: { kind: "dummy" } }); // of another program, with the name of a WireGuard device
  const off = open({ WireguardEnabled: false }, node.kernel);
  removeUnusedDevices({ parameters: off.parameters, links: node.kernel.links, logger: off.logger });
  off.send(...twoPeers);
  off.settle();
  expect(node.kernel.links.get("wireguard.cali")).toBeUndefined();
  expect(node.kernel.links.get("wg-v6.cali")).toBeDefined();
  expect([off.routes(4), off.rules(4)]).toEqual([[], []]);
  expect(off.reports).toContainEqual({ type: "wireguardStatus", ipVersion: 4, publicKey: "" });
});

test("FD-150 FD-131 the table is the first in the ranges that does not belong to the kernel", () => {
  expect(wireguardTable({ RouteTableRange: undefined, RouteTableRanges: [] })).toBe(1);
  expect(wireguardTable({ RouteTableRange: { min: 40, max: 50 }, RouteTableRanges: [] })).toBe(40);
  expect(wireguardTable({ RouteTableRange: undefined, RouteTableRanges: [{ min: 253, max: 300 }] })).toBe(256);
});

test("FD-151 IPv6 has its own device, keys, peers, table and rule", () => {
  const node = open({ WireguardEnabled: false, WireguardEnabledV6: true });
  const v6 = (name: string, letter: string) => wireguard(name, key(letter), "", 6);
  node.send(...twoPeers, v6("c", "c"), route("fd65:3::/122", "c"), route("fd65:1::/122", "me"));
  node.publish(6);
  expect(node.devices.get("wg-v6.cali")).toMatchObject({ port: 51821, mark: MARK });
  expect(node.devices.get("wg-v6.cali")?.peers).toMatchObject([
    { publicKey: key("c"), endpoint: { address: "2001:db8::3", port: 51821 }, allowed: ["fd65:3::/122"] },
  ]);
  expect(node.kernel.links.get("wg-v6.cali")?.mtu).toBe(1420);
  expect(node.routes(6)).toEqual(["fd65:3::/122 wg-v6.cali", "throw fd65:1::/122"]);
  expect([node.rules(6).length, node.rules(4).length]).toEqual([1, 0]);
  expect(node.kernel.links.get("wireguard.cali")).toBeUndefined();
});

test("FD-152 with host encryption, host addresses are routed to the device, which has the node's address", () => {
  const hosts = [route("192.0.2.2/32", "b", ROUTE_TYPE.remoteHost), route("192.0.2.3/32", "c", ROUTE_TYPE.remoteHost)];
  const plain = open();
  plain.send(...twoPeers, ...hosts);
  plain.publish();
  expect(plain.routes(4)).not.toContain("192.0.2.2/32 wireguard.cali");
  expect(plain.settings).toEqual([]);
  const node = open({ WireguardHostEncryptionEnabled: true });
  node.send(...twoPeers, ...hosts);
  node.publish();
  expect(node.routes(4)).toContain("192.0.2.2/32 wireguard.cali");
  expect(node.routes(4)).toContain("throw 192.0.2.3/32");
  expect(node.devices.get("wireguard.cali")?.peers[0]?.allowed).toContain("192.0.2.2/32" as Cidr);
  const link = node.kernel.links.get("wireguard.cali")?.index ?? 0;
  expect(node.kernel.addresses.list({ version: 4, link })).toMatchObject([{ address: "192.0.2.1", length: 32 }]);
  expect(node.settings).toEqual(["net.ipv4.conf.all.src_valid_mark=1"]);
});

test("FD-153 threading is set after the first peer was added, and every peer has the keepalive", () => {
  const node = open({ WireguardThreadingEnabled: true, WireguardPersistentKeepAlive: 25 });
  node.send(host("me", "192.0.2.1/24"));
  node.publish();
  expect(node.threads).toEqual([]);
  node.send(...twoPeers);
  node.settle();
  expect(node.threads).toEqual(["wireguard.cali true"]);
  expect(node.devices.get("wireguard.cali")?.peers[0]?.keepaliveSeconds).toBe(25);
});

test("FD-129 with RouteSyncDisabled, peers are written and routes are not", () => {
  const node = open({ RouteSyncDisabled: true });
  node.send(...twoPeers);
  node.publish();
  expect(node.devices.get("wireguard.cali")?.peers).toHaveLength(1);
  expect([node.routes(4), node.rules(4)]).toEqual([[], []]);
});

test("the final device and table do not depend on earlier states", () => {
  const message = fc.oneof(
    fc
      .record({ n: fc.constantFrom("b", "c", "d"), a: fc.constantFrom("192.0.2.7/24", "192.0.2.8/24", "") })
      .map(({ n, a }): ManagerMessage => host(n, a)),
    fc
      .record({ n: fc.constantFrom("b", "c", "d", "me"), k: fc.constantFrom("", key("1"), key("2")) })
      .map(({ n, k }) => wireguard(n, k)),
    fc
      .record({
        d: fc.constantFrom("10.65.2.0/26", "10.65.3.0/26", "10.65.2.5/32"),
        n: fc.constantFrom("b", "c", "me"),
        t: fc.constantFrom(ROUTE_TYPE.remoteWorkload, ROUTE_TYPE.cidrInfo, ROUTE_TYPE.remoteTunnel),
      })
      .map(({ d, n, t }) => route(d, n, t)),
  );
  /** The last word about each thing. */
  const facts = (messages: readonly ManagerMessage[]) => {
    const last = new Map<string, ManagerMessage>();
    for (const m of messages) {
      const [type, id] =
        m.type === "routeUpdate" ? ["route", m.dst] : [m.type.slice(0, 9), "hostname" in m ? m.hostname : ""];
      last.delete(`${type} ${id}`);
      last.set(`${type} ${id}`, m);
    }
    return [...last.values()];
  };
  const end = (messages: readonly ManagerMessage[], rounds: boolean) => {
    const node = open();
    node.settle();
    node.devices.set("wireguard.cali", { privateKey: key("p") });
    node.resync();
    for (const m of messages) {
      node.send(m);
      if (rounds) node.round();
    }
    node.publish();
    const peers = node.devices.get("wireguard.cali")?.peers ?? [];
    return [node.routes(4), peers.map((p) => [p.publicKey, p.endpoint?.address, [...p.allowed].sort()]).sort()];
  };
  fc.assert(
    fc.property(fc.array(message, { maxLength: 12 }), (messages) => {
      expect(end(messages, true)).toEqual(end(facts(messages), false));
    }),
    { numRuns: 60 },
  );
});
