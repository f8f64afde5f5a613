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

interface Given {
  ip?: string;
  ip6?: string;
  method?: string;
  method6?: string;
  backend?: "bird" | "none";
  kubernetes?: readonly string[];
  reach?: string;
}
async function configure(given: Given, before: NodeSpec = {}, host: readonly HostInterface[] = HOST) {
  const records: LogRecord[] = [];
  const log = createLogger({ level: "debug", write: (record) => records.push(record) });
  const result = await configureAddresses(before, {
    settings: {
      backend: given.backend ?? "bird",
      ip: { 4: given.ip ?? "", 6: given.ip6 ?? "" },
      autodetection: { 4: given.method ?? "", 6: given.method6 ?? "" },
    },
    interfaces: host,
    kubernetesAddresses: given.kubernetes?.flatMap((text) => tryParseAddress(text) ?? []),
    sourceTowards: async () => (given.reach === undefined ? undefined : tryParseAddress(given.reach)),
    log,
  });
  return { ...result, records };
}
const ipv4 = async (given: Given, before?: NodeSpec) => (await configure(given, before)).spec.bgp?.ipv4Address;
const stored: NodeSpec = { bgp: { ipv4Address: "203.0.113.5/24" } };

const table: { id: string; name: string; given: Given; before?: NodeSpec; want: string | undefined }[] = [
  { id: "NB-024", name: "no setting and no stored address: detected", given: {}, want: "198.51.100.11/24" },
  { id: "NB-024", name: "no setting and a stored address: kept", given: {}, before: stored, want: "203.0.113.5/24" },
  {
    id: "NB-024",
    name: "autodetect replaces the stored address",
    given: { ip: "autodetect" },
    before: stored,
    want: "198.51.100.11/24",
  },
  {
    id: "NB-024",
    name: "autodetect without a match keeps the stored address",
    given: { ip: "autodetect", method: "interface=ens" },
    before: stored,
    want: "203.0.113.5/24",
  },
  {
    id: "NB-024",
    name: "none keeps the stored address",
    given: { ip: "none" },
    before: stored,
    want: "203.0.113.5/24",
  },
  {
    id: "NB-024",
    name: "none without a stored address means no IPv4 address, if there is an IPv6 address",
    given: { ip: "none", ip6: "fd00::1" },
    want: undefined,
  },
  {
    id: "NB-024",
    name: "an address with a prefix length is used unchanged",
    given: { ip: "203.0.113.9/28" },
    want: "203.0.113.9/28",
  },
  {
    id: "NB-025",
    name: "an address without a length has the length of its interface",
    given: { ip: "192.0.2.11" },
    want: "192.0.2.11/24",
  },
  {
    id: "NB-025",
    name: "an address without a length that no interface has is a /32",
    given: { ip: "203.0.113.9" },
    want: "203.0.113.9/32",
  },
  {
    id: "NB-026",
    name: "first-found selects the eligible interface with the highest index",
    given: { method: "first-found" },
    want: "198.51.100.11/24",
  },
  { id: "NB-027", name: "interface= by pattern", given: { method: "interface=ens.*, eth0" }, want: "192.0.2.11/24" },
  {
    id: "NB-027",
    name: "interface= may match an interface that first-found skips",
    given: { method: "interface=docker0" },
    want: "172.17.0.1/16",
  },
  {
    id: "NB-027",
    name: "interface= without a pattern matches all interfaces",
    given: { method: "interface=" },
    want: "10.65.0.1/32",
  },
  { id: "NB-027", name: "skip-interface=", given: { method: "skip-interface=eth1" }, want: "192.0.2.11/24" },
  {
    id: "NB-028",
    name: "can-reach= selects the source address",
    given: { method: "can-reach=8.8.8.8", reach: "192.0.2.11" },
    want: "192.0.2.11/24",
  },
  {
    id: "NB-029",
    name: "cidr= on any interface",
    given: { method: "cidr=10.99.0.0/16,172.17.0.0/16" },
    want: "172.17.0.1/16",
  },
  {
    id: "NB-030",
    name: "kubernetes-internal-ip, first of the family",
    given: { method: "kubernetes-internal-ip", kubernetes: ["fd00:a::11", "192.0.2.11", "198.51.100.11"] },
    want: "192.0.2.11/24",
  },
];
for (const { id, name, given, before, want } of table)
  test(`${id} ${name}`, async () => expect(await ipv4(given, before)).toBe(want));

const rejected: { id: string; name: string; given: Given; why: string }[] = [
  { id: "NB-024", name: "no address of either family", given: { ip: "none" }, why: "no IPv4 or IPv6 addresses" },
  { id: "NB-024", name: "an address of the wrong family", given: { ip: "fd00::1" }, why: "IP=fd00::1" },
  { id: "NB-024", name: "text that is not an address", given: { ip: "banana" }, why: "IP=banana" },
  {
    id: "NB-024",
    name: "no IPv6 address detected",
    given: { ip6: "autodetect", method6: "interface=ens" },
    why: "IPv6",
  },
  { id: "NB-026", name: "an unknown method", given: { method: "nonsense" }, why: "Invalid IP autodetection method" },
  { id: "NB-027", name: "an invalid pattern", given: { method: "interface=(" }, why: "not a regular expression" },
  { id: "NB-027", name: "all skipped", given: { method: "skip-interface=" }, why: "failed to autodetect" },
  {
    id: "NB-027",
    name: "a method without its =",
    given: { method: "interface" },
    why: "Invalid IP autodetection method",
  },
  {
    id: "NB-028",
    name: "can-reach without a destination",
    given: { method: "can-reach=" },
    why: "failed to autodetect",
  },
  {
    id: "NB-028",
    name: "an unreachable destination",
    given: { method: "can-reach=nowhere" },
    why: "failed to autodetect",
  },
  { id: "NB-029", name: "an invalid CIDR", given: { method: "cidr=10.0.0.0/99" }, why: "failed to autodetect" },
  {
    id: "NB-030",
    name: "an InternalIP of another host",
    given: { method: "kubernetes-internal-ip", kubernetes: ["192.0.2.99"] },
    why: "failed to autodetect",
  },
  {
    id: "NB-030",
    name: "no Kubernetes node",
    given: { method: "kubernetes-internal-ip" },
    why: "failed to autodetect",
  },
];
for (const { id, name, given, why } of rejected)
  test(`${id} rejected: ${name}`, async () => expect(configure(given)).rejects.toThrow(why));

test("NB-024 IPv6 is detected only with IP6=autodetect; an address without a length is a /128", async () => {
  expect((await configure({})).spec.bgp?.ipv6Address).toBeUndefined();
  expect((await configure({ ip6: "autodetect" })).spec.bgp?.ipv6Address).toBe("fd00:b::11/64");
  expect((await configure({ ip6: "fd00:a::11" })).spec.bgp?.ipv6Address).toBe("fd00:a::11/128");
});

test("NB-024 backend none changes nothing", async () =>
  expect(await configure({ backend: "none" }, stored)).toMatchObject({ spec: stored, changed: false }));

test("NB-026 the log contains the addresses not selected, and warns about an address that no interface has", async () => {
  const { records } = await configure({});
  expect(records[0]).toMatchObject({
    level: "warn",
    fields: {
      address: "198.51.100.11/24",
      interface: "eth1",
      because: expect.stringContaining("the interface added last is preferred"),
      lost: "eth0 192.0.2.11/24 (added before eth1)",
    },
  });
  for (const method of ["interface=eth.*", "skip-interface=ens.*", "cidr=192.0.2.0/24,198.51.100.0/24"])
    expect((await configure({ method })).records[0]?.fields).toMatchObject({
      because: expect.stringContaining(method.slice(method.indexOf("=") + 1)),
      lost: "eth0 192.0.2.11/24 (added before eth1)",
    });
  const foreign = await configure({ ip: "203.0.113.9/28" });
  expect(foreign.records.map(({ message }) => message)).toContain("no interface of this host has the node's address");
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

test("NB-031 interfaces are recorded for the configured families", async () => {
  expect((await configure({})).spec.interfaces).toBeUndefined();
  expect((await configure({ ip: "autodetect" })).spec.interfaces).toEqual([
    { name: "eth0", addresses: ["192.0.2.11"] },
    { name: "eth1", addresses: ["169.254.7.7", "198.51.100.11"] },
  ]);
  const both = await configure({ ip: "autodetect", ip6: "autodetect" });
  expect(both.spec.interfaces?.[0]).toEqual({ name: "eth0", addresses: ["192.0.2.11", "fd00:a::11", "fe80::1"] });
  const gone = await configure({}, { ...stored, interfaces: [{ name: "eth9" }] });
  expect(gone).toMatchObject({ changed: true });
  expect(gone.spec.interfaces).toBeUndefined();
});

test("NB-035 `changed` is false if nothing changed", async () => {
  const first = await configure({ ip: "autodetect" });
  expect(first.changed).toBe(true);
  expect((await configure({ ip: "autodetect" }, first.spec)).changed).toBe(false);
});

test("NB-032 another node with one of this node's addresses is found", () => {
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

test("NB-032 addresses to be autodetected are cleared, and so is an empty BGP section", () => {
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
