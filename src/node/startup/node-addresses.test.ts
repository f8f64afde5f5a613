import { expect, test } from "bun:test";
import { parseNetwork, tryParseAddress } from "../../lib/ip/ip.ts";
import { createLogger, type LogRecord } from "../../lib/log/log.ts";
import { parseAsNumber } from "../../model/index.ts";
import { AddressFailure, configureAddresses, findConflict, type NodeSpec, withoutDetected } from "./node-addresses.ts";
import { type HostInterface, isSkipped } from "./host-interfaces.ts";

const iface = (index: number, name: string, ...networks: string[]): HostInterface => ({
  index,
  name,
  networks: networks.map(parseNetwork),
});
const HOST = [
  iface(1, "lo", "127.0.0.1/8", "::1/128"),
  iface(2, "eth0", "192.0.2.11/24", "fd00:a::11/64", "fe80::1/64"),
  iface(3, "eth1", "169.254.7.7/16", "198.51.100.11/24", "fd00:b::11/64"),
  iface(4, "docker0", "172.17.0.1/16"),
  iface(5, "cali123", "10.65.0.1/32"),
];

interface Wish {
  ip?: string;
  ip6?: string;
  method?: string;
  method6?: string;
  backend?: "bird" | "none";
  kubernetes?: readonly string[];
  reach?: string;
}
async function configure(wish: Wish, before: NodeSpec = {}, host: readonly HostInterface[] = HOST) {
  const records: LogRecord[] = [];
  const log = createLogger({ level: "debug", write: (record) => records.push(record) });
  const result = await configureAddresses(before, {
    settings: {
      backend: wish.backend ?? "bird",
      ip: { 4: wish.ip ?? "", 6: wish.ip6 ?? "" },
      autodetection: { 4: wish.method ?? "", 6: wish.method6 ?? "" },
    },
    interfaces: host,
    kubernetesAddresses: wish.kubernetes?.flatMap((text) => tryParseAddress(text) ?? []),
    sourceTowards: async () => (wish.reach === undefined ? undefined : tryParseAddress(wish.reach)),
    log,
  });
  return { ...result, records };
}
const four = async (wish: Wish, before?: NodeSpec) => (await configure(wish, before)).spec.bgp?.ipv4Address;
const known: NodeSpec = { bgp: { ipv4Address: "203.0.113.5/24" } };

const table: { id: string; name: string; wish: Wish; before?: NodeSpec; want: string | undefined }[] = [
  { id: "NB-024", name: "nothing said, nothing known: detected", wish: {}, want: "198.51.100.11/24" },
  { id: "NB-024", name: "nothing said, an address known: kept", wish: {}, before: known, want: "203.0.113.5/24" },
  {
    id: "NB-024",
    name: "autodetect replaces what is known",
    wish: { ip: "autodetect" },
    before: known,
    want: "198.51.100.11/24",
  },
  {
    id: "NB-024",
    name: "autodetect that finds nothing keeps what is known",
    wish: { ip: "autodetect", method: "interface=ens" },
    before: known,
    want: "203.0.113.5/24",
  },
  { id: "NB-024", name: "none keeps what is known", wish: { ip: "none" }, before: known, want: "203.0.113.5/24" },
  {
    id: "NB-024",
    name: "none alone is nothing, if IPv6 is there",
    wish: { ip: "none", ip6: "fd00::1" },
    want: undefined,
  },
  { id: "NB-024", name: "a network is taken as it is", wish: { ip: "203.0.113.9/28" }, want: "203.0.113.9/28" },
  {
    id: "NB-025",
    name: "a bare address takes its interface's length",
    wish: { ip: "192.0.2.11" },
    want: "192.0.2.11/24",
  },
  {
    id: "NB-025",
    name: "a bare address of no interface is a /32",
    wish: { ip: "203.0.113.9" },
    want: "203.0.113.9/32",
  },
  {
    id: "NB-026",
    name: "first-found takes the highest index that may be",
    wish: { method: "first-found" },
    want: "198.51.100.11/24",
  },
  { id: "NB-027", name: "interface= by pattern", wish: { method: "interface=ens.*, eth0" }, want: "192.0.2.11/24" },
  {
    id: "NB-027",
    name: "interface= may name one that is skipped otherwise",
    wish: { method: "interface=docker0" },
    want: "172.17.0.1/16",
  },
  { id: "NB-027", name: "interface= without a pattern is any", wish: { method: "interface=" }, want: "10.65.0.1/32" },
  { id: "NB-027", name: "skip-interface=", wish: { method: "skip-interface=eth1" }, want: "192.0.2.11/24" },
  {
    id: "NB-028",
    name: "can-reach= takes the source address",
    wish: { method: "can-reach=8.8.8.8", reach: "192.0.2.11" },
    want: "192.0.2.11/24",
  },
  {
    id: "NB-029",
    name: "cidr= on any interface",
    wish: { method: "cidr=10.99.0.0/16,172.17.0.0/16" },
    want: "172.17.0.1/16",
  },
  {
    id: "NB-030",
    name: "kubernetes-internal-ip, first of the family",
    wish: { method: "kubernetes-internal-ip", kubernetes: ["fd00:a::11", "192.0.2.11", "198.51.100.11"] },
    want: "192.0.2.11/24",
  },
];
for (const { id, name, wish, before, want } of table)
  test(`${id} ${name}`, async () => expect(await four(wish, before)).toBe(want));

const refused: { id: string; name: string; wish: Wish; why: string }[] = [
  { id: "NB-024", name: "no address of either family", wish: { ip: "none" }, why: "no IPv4 or IPv6 addresses" },
  { id: "NB-024", name: "an address of the wrong family", wish: { ip: "fd00::1" }, why: "IP=fd00::1" },
  { id: "NB-024", name: "no address at all", wish: { ip: "banana" }, why: "IP=banana" },
  {
    id: "NB-024",
    name: "IPv6 that cannot be detected",
    wish: { ip6: "autodetect", method6: "interface=ens" },
    why: "IPv6",
  },
  { id: "NB-026", name: "an unknown method", wish: { method: "nonsense" }, why: "Invalid IP autodetection method" },
  { id: "NB-027", name: "a broken pattern", wish: { method: "interface=(" }, why: "no pattern" },
  { id: "NB-027", name: "all skipped", wish: { method: "skip-interface=" }, why: "failed to autodetect" },
  {
    id: "NB-027",
    name: "a method without its =",
    wish: { method: "interface" },
    why: "Invalid IP autodetection method",
  },
  { id: "NB-028", name: "nobody to reach", wish: { method: "can-reach=" }, why: "failed to autodetect" },
  { id: "NB-028", name: "nothing reached", wish: { method: "can-reach=nowhere" }, why: "failed to autodetect" },
  { id: "NB-029", name: "a broken CIDR", wish: { method: "cidr=10.0.0.0/99" }, why: "failed to autodetect" },
  {
    id: "NB-030",
    name: "an InternalIP of another host",
    wish: { method: "kubernetes-internal-ip", kubernetes: ["192.0.2.99"] },
    why: "failed to autodetect",
  },
  { id: "NB-030", name: "no Kubernetes node", wish: { method: "kubernetes-internal-ip" }, why: "failed to autodetect" },
];
for (const { id, name, wish, why } of refused)
  test(`${id} refused: ${name}`, async () => expect(configure(wish)).rejects.toThrow(why));

test("NB-024 IPv6 is detected only when asked for, and a bare one is a /128", async () => {
  expect((await configure({})).spec.bgp?.ipv6Address).toBeUndefined();
  expect((await configure({ ip6: "autodetect" })).spec.bgp?.ipv6Address).toBe("fd00:b::11/64");
  expect((await configure({ ip6: "fd00:a::11" })).spec.bgp?.ipv6Address).toBe("fd00:a::11/128");
});

test("NB-024 backend none changes nothing", async () =>
  expect(await configure({ backend: "none" }, known)).toMatchObject({ spec: known, changed: false }));

test("NB-026 who lost the detection, and why, is in the log; so is an address of no interface", async () => {
  const { records } = await configure({});
  expect(records[0]).toMatchObject({
    level: "warn",
    fields: {
      address: "198.51.100.11/24",
      interface: "eth1",
      because: expect.stringContaining("the one added last wins"),
      lost: "eth0 192.0.2.11/24 (added before eth1)",
    },
  });
  for (const method of ["interface=eth.*", "skip-interface=ens.*", "cidr=192.0.2.0/24,198.51.100.0/24"])
    expect((await configure({ method })).records[0]?.fields).toMatchObject({
      because: expect.stringContaining(method.slice(method.indexOf("=") + 1)),
      lost: "eth0 192.0.2.11/24 (added before eth1)",
    });
  const strange = await configure({ ip: "203.0.113.9/28" });
  expect(strange.records.map(({ message }) => message)).toContain("the node's address is on no interface of this host");
});

test("NB-026 interfaces of containers and tunnels are skipped, others are not", () => {
  for (const name of [
    "docker0",
    "cbr0",
    "dummy1",
    "podman0",
    "virbr0",
    "lxcbr0",
    "veth1a",
    "lo",
    "br-12",
    "cali1",
    "tunl0",
  ])
    expect(isSkipped(name)).toBe(true);
  for (const name of [
    "flannel.1",
    "kube-ipvs0",
    "cni0",
    "vxlan.calico",
    "vxlan-v6.calico",
    "wireguard.cali",
    "wg-v6.cali",
    "nodelocaldns",
  ])
    expect(isSkipped(name)).toBe(true);
  for (const name of ["eth0", "ibmveth0", "bond0", "ens3", "br0"]) expect(isSkipped(name)).toBe(false);
});

test("NB-031 interfaces are recorded for the families that were asked for", async () => {
  expect((await configure({})).spec.interfaces).toBeUndefined();
  expect((await configure({ ip: "autodetect" })).spec.interfaces).toEqual([
    { name: "eth0", addresses: ["192.0.2.11"] },
    { name: "eth1", addresses: ["169.254.7.7", "198.51.100.11"] },
  ]);
  const both = await configure({ ip: "autodetect", ip6: "autodetect" });
  expect(both.spec.interfaces?.[0]).toEqual({ name: "eth0", addresses: ["192.0.2.11", "fd00:a::11", "fe80::1"] });
  const gone = await configure({}, { ...known, interfaces: [{ name: "eth9" }] });
  expect(gone).toMatchObject({ changed: true });
  expect(gone.spec.interfaces).toBeUndefined();
});

test("NB-035 nothing changed is told apart from something changed", async () => {
  const first = await configure({ ip: "autodetect" });
  expect(first.changed).toBe(true);
  expect((await configure({ ip: "autodetect" }, first.spec)).changed).toBe(false);
});

test("NB-032 a node with one of our addresses is named", () => {
  const spec: NodeSpec = { bgp: { ipv4Address: "192.0.2.11/24", ipv6Address: "fd00::1/64" } };
  const other = (name: string, bgp: NodeSpec["bgp"]) => ({ name, spec: bgp === undefined ? {} : { bgp } });
  expect(findConflict("me", spec, [other("me", spec.bgp), other("a", undefined)])).toBeUndefined();
  expect(findConflict("me", spec, [other("b", { ipv4Address: "192.0.2.11/32" })])).toMatchObject({
    version: 4,
    node: "b",
  });
  expect(findConflict("me", spec, [other("c", { ipv6Address: "fd00::1/128" })])).toMatchObject({
    version: 6,
    node: "c",
  });
});

test("NB-032 what was to be detected is cleared, and an empty section with it", () => {
  const spec: NodeSpec = { bgp: { ipv4Address: "192.0.2.11/24", ipv6Address: "fd00::1/64" } };
  expect(withoutDetected(spec, { 4: "autodetect", 6: "" })).toEqual({ bgp: { ipv6Address: "fd00::1/64" } });
  expect(withoutDetected(spec, { 4: "autodetect", 6: "autodetect" })).toEqual({});
  expect(new AddressFailure("x")).toBeInstanceOf(Error);
});

for (const [text, want] of [
  ["64512", 64512],
  ["1.10", 65546],
  ["4294967295", 4294967295],
  ["4294967296", undefined],
  ["70000.1", undefined],
  ["1.70000", undefined],
  ["abc", undefined],
  ["-1", undefined],
] as const)
  test(`NB-033 AS ${text} is ${want}`, () => expect(parseAsNumber(text)).toBe(want));
