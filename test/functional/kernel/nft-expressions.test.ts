// Compares our rules with those that `nft` compiles from the same text: `nft list` must print both in the same way.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import * as m from "../../../src/kernel/netfilter/nft-match.ts";
import type { Expression } from "../../../src/kernel/netfilter/nft-expression.ts";
import { Nft } from "../../../src/kernel/netfilter/nft.ts";
import type { BaseChain, NftFamily } from "../../../src/kernel/netfilter/nft-change.ts";
import {
  concatenate,
  interfaceNameBytes,
  prefixElements,
  serviceBytes,
} from "../../../src/kernel/netfilter/nft-set.ts";
import { addressBytes } from "../../../src/lib/ip/ip.ts";
import { TestNamespace } from "./test-namespace.ts";

const cidr = (text: string) => text as Cidr;
const address = (text: string) => text as IpAddress;
type Case = readonly [text: string, expressions: readonly Expression[]];

const tcp = m.protocol(6);
const icmp4 = m.protocol(1);
const icmp6 = m.protocol(58);
const v4: readonly Case[] = [
  ['iifname "eth0" counter accept', [...m.interfaceName("in", "eth0"), m.counter, m.accept]],
  ['oifname "cali*" return', [...m.interfaceName("out", "cali*"), m.returnToCaller]],
  ['iifname != "lo" drop', [...m.interfaceName("in", "lo", true), m.drop]],
  ["meta l4proto tcp accept", [...tcp, m.accept]],
  ["meta l4proto != udp accept", [...m.protocol(17, true), m.accept]],
  ["meta l4proto 200 accept", [...m.protocol(200), m.accept]],
  ["ip saddr 10.0.0.0/8 accept", [...m.prefix("source", cidr("10.0.0.0/8")), m.accept]],
  ["ip saddr 10.64.0.0/10 accept", [...m.prefix("source", cidr("10.64.0.0/10")), m.accept]],
  ["ip daddr != 10.0.0.1 accept", [...m.prefix("destination", cidr("10.0.0.1/32"), true), m.accept]],
  ["ip saddr 192.0.2.1 accept", [...m.address("source", address("192.0.2.1")), m.accept]],
  ["fib saddr . oif type != local accept", [...m.addressIsLocal("source", true, "oif"), m.accept]],
  ["ip saddr @nets accept", [...m.addressInSet(4, "source", "nets"), m.accept]],
  ["ip daddr != @nets accept", [...m.addressInSet(4, "destination", "nets", true), m.accept]],
  [
    "ip saddr { 10.0.0.0/8, 192.0.2.1 } accept",
    [
      ...m.addressInSet(4, "source", {
        type: { key: ["ipv4_addr"], interval: true },
        elements: [...prefixElements(cidr("10.0.0.0/8")), ...prefixElements(cidr("192.0.2.1/32"))],
      }),
      m.accept,
    ],
  ],
  [
    "ip daddr . meta l4proto . th dport @services accept",
    [...m.addressAndPortInSet(4, "destination", "services"), m.accept],
  ],
  [
    "ip saddr . meta l4proto . th sport != @services drop",
    [...m.addressAndPortInSet(4, "source", "services", true), m.drop],
  ],
  ["tcp dport 80 accept", [...tcp, ...m.ports("destination", [{ first: 80, last: 80 }]), m.accept]],
  ["tcp dport 80-90 accept", [...tcp, ...m.ports("destination", [{ first: 80, last: 90 }]), m.accept]],
  ["tcp sport != 80-90 accept", [...tcp, ...m.ports("source", [{ first: 80, last: 90 }], true), m.accept]],
  ["udp sport != 53 accept", [...m.protocol(17), ...m.ports("source", [{ first: 53, last: 53 }], true), m.accept]],
  [
    "tcp dport { 80, 443 } accept",
    [
      ...tcp,
      ...m.ports("destination", [
        { first: 443, last: 443 },
        { first: 80, last: 80 },
      ]),
      m.accept,
    ],
  ],
  [
    "tcp dport != { 1, 2-5, 65000-65535 } accept",
    [
      ...tcp,
      ...m.ports(
        "destination",
        [
          { first: 1, last: 1 },
          { first: 2, last: 5 },
          { first: 65000, last: 65535 },
        ],
        true,
      ),
      m.accept,
    ],
  ],
  ["icmp type echo-request accept", [...icmp4, ...m.icmpType(8), m.accept]],
  ["icmp type != echo-request accept", [...icmp4, ...m.icmpType(8, undefined, true), m.accept]],
  ["icmp type destination-unreachable icmp code 4 accept", [...icmp4, ...m.icmpType(3, 4), m.accept]],
  ["meta mark & 0x00030000 == 0x00010000 counter return", [...m.markIs(0x10000, 0x30000), m.counter, m.returnToCaller]],
  ["meta mark & 0x00030000 != 0x00000000 counter return", [...m.markIs(0, 0x30000, true), m.counter, m.returnToCaller]],
  ["meta mark & 0x80000000 == 0x80000000 return", [...m.markIs(0x80000000, 0x80000000), m.returnToCaller]],
  ["counter meta mark set meta mark | 0x00010000", [m.counter, ...m.setMark(0x10000, 0x10000)]],
  ["meta mark set meta mark & 0xffe4ffff", m.setMark(0, 0x1b0000)],
  ["meta mark set meta mark & 0x001fffff | 0xffe00000", m.setMark(0xffe00000, 0xffe00000)],
  ["meta mark set meta mark & 0xff00ffff ^ 0x00120000", m.setMark(0x120000, 0xff0000)],
  ["ct state established,related accept", [...m.ctState(["established", "related"]), m.accept]],
  ["ct state invalid drop", [...m.ctState(["invalid"]), m.drop]],
  ["ct state new accept", [...m.ctState(["new"]), m.accept]],
  ["ct status dnat accept", [...m.ctIsDnat(), m.accept]],
  ["ct status & dnat == 0 accept", [...m.ctIsDnat(true), m.accept]],
  ["meta l4proto tcp ct count over 10 reject with tcp reset", [...tcp, ...m.connectionsOver(10), m.rejectTcp]],
  ["fib saddr . mark . iif oif 0 drop", [...m.reversePathFails(), m.drop]],
  ["fib daddr type local accept", [...m.addressIsLocal("destination"), m.accept]],
  ["fib saddr type != local accept", [...m.addressIsLocal("source", true), m.accept]],
  ["limit rate 10/second burst 5 packets accept", [m.rateLimit(10, "second", 5), m.accept]],
  ["limit rate over 100/minute burst 20 packets drop", [m.rateLimit(100, "minute", 20, true), m.drop]],
  ['log prefix "calico-packet: " level info', [{ kind: "log", prefix: "calico-packet: ", level: 6 }]],
  ['log prefix "DPI|tier" group 1 snaplen 80', [{ kind: "nflog", prefix: "DPI|tier", group: 1, snapLength: 80 }]],
  ["ip dscp set 20", m.setDscp(4, 20)],
  ["meta l4proto tcp reject with tcp reset", [...tcp, m.rejectTcp]],
  ["reject", [m.reject(4)]],
  ["jump other", [m.jump("other")]],
  ["goto other", [m.goto("other")]],
  ["iifname vmap @dispatch", m.interfaceVerdict("in", "dispatch")],
  ["notrack", [m.notrack]],
];

const nat: readonly Case[] = [
  ["masquerade", m.masquerade()],
  ["masquerade fully-random", m.masquerade({ fullyRandom: true })],
  [
    "meta l4proto tcp masquerade to :4790-65535 fully-random",
    [...tcp, ...m.masquerade({ ports: { first: 4790, last: 65535 }, fullyRandom: true })],
  ],
  ["snat to 192.0.2.1", m.translate("snat", address("192.0.2.1"))],
  [
    "meta l4proto udp snat to 192.0.2.1:1024-2048 fully-random",
    [
      ...m.protocol(17),
      ...m.translate("snat", address("192.0.2.1"), { ports: { first: 1024, last: 2048 }, fullyRandom: true }),
    ],
  ],
  [
    "ip daddr 198.51.100.1 dnat to 10.0.0.1",
    [...m.prefix("destination", cidr("198.51.100.1/32")), ...m.translate("dnat", address("10.0.0.1"))],
  ],
  [
    "meta l4proto tcp dnat to 10.0.0.1:8775",
    [...tcp, ...m.translate("dnat", address("10.0.0.1"), { ports: { first: 8775, last: 8775 } })],
  ],
];
const nat6: readonly Case[] = [
  ["snat to fd00::1", m.translate("snat", address("fd00::1"))],
  ["masquerade", m.masquerade()],
];

const v6: readonly Case[] = [
  ["ip6 saddr fd00::/8 accept", [...m.prefix("source", cidr("fd00::/8")), m.accept]],
  ["ip6 saddr fd00:1::/61 accept", [...m.prefix("source", cidr("fd00:1::/61")), m.accept]],
  ["ip6 daddr != fd00::1 accept", [...m.prefix("destination", cidr("fd00::1/128"), true), m.accept]],
  ["ip6 saddr @nets accept", [...m.addressInSet(6, "source", "nets"), m.accept]],
  [
    "ip6 daddr . meta l4proto . th dport @services accept",
    [...m.addressAndPortInSet(6, "destination", "services"), m.accept],
  ],
  ["icmpv6 type nd-neighbor-solicit accept", [...icmp6, ...m.icmpType(135), m.accept]],
  [
    "icmpv6 type destination-unreachable icmpv6 code port-unreachable accept",
    [...icmp6, ...m.icmpType(1, 4), m.accept],
  ],
  ["ip6 dscp set 46", m.setDscp(6, 46)],
  ["reject", [m.reject(6)]],
  ["fib saddr . mark . iif oif 0 drop", [...m.reversePathFails(), m.drop]],
];

const suites: readonly { family: NftFamily; what: string; cases: readonly Case[] }[] = [
  { family: "ip", what: "IPv4", cases: v4 },
  { family: "ip", what: "IPv4 translation", cases: nat },
  { family: "ip6", what: "IPv6", cases: v6 },
  { family: "ip6", what: "IPv6 translation", cases: nat6 },
];

interface ListedRule {
  readonly chain: string;
  readonly comment?: string;
  readonly expr: unknown;
}

let namespace: TestNamespace;
let nft: Nft;
beforeAll(() => {
  namespace = new TestNamespace("nftexpr");
  nft = namespace.enter(() => new Nft());
});
afterAll(() => {
  nft[Symbol.dispose]();
  namespace[Symbol.dispose]();
});

const listed = (family: NftFamily, table: string): ListedRule[] => {
  const text = namespace.run("nft", ["-j", "list", "table", family, table]);
  const items = (JSON.parse(text) as { nftables: { rule?: ListedRule }[] }).nftables;
  return items.flatMap((item) => (item.rule === undefined ? [] : [item.rule]));
};

/** Inline sets are listed with elements in any order. */
const settled = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(settled);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      key === "set" && Array.isArray(inner)
        ? inner.map(settled).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
        : settled(inner),
    ]),
  );
};

for (const { family, what, cases } of suites)
  describe(what, () => {
    const key = family === "ip" ? "ipv4_addr" : "ipv6_addr";
    const ours = { family, name: "ours" } as const;
    let theirs: ListedRule[] = [];
    beforeAll(() => {
      const sets = `
        set nets { type ${key}; flags interval; }
        set services { type ${key} . inet_proto . inet_service; }
        map dispatch { type ifname : verdict; }
        chain other { }`;
      const rules = cases.map(([text], i) => `chain c${i} { ${text} comment "mark-${i}"; }`).join("\n");
      namespace.run("nft", ["-f", "-"], `table ${family} theirs { ${sets}\n${rules}\n}`);
      theirs = listed(family, "theirs");
      nft.commit([
        { op: "addTable", table: ours },
        { op: "addSet", table: ours, set: "nets", type: { key: [key], interval: true } },
        { op: "addSet", table: ours, set: "services", type: { key: [key, "inet_proto", "inet_service"] } },
        { op: "addSet", table: ours, set: "dispatch", type: { key: ["ifname"], value: "verdict" } },
        { op: "addChain", table: ours, chain: "other" },
      ]);
    });
    afterAll(() => {
      namespace.run("nft", ["flush", "ruleset"]);
    });

    for (const [i, [text, expressions]] of cases.entries())
      test(`${family} ${text}`, () => {
        nft.commit([
          { op: "addChain", table: ours, chain: `c${i}` },
          { op: "appendRule", table: ours, chain: `c${i}`, rule: { expressions, comment: `mark-${i}` } },
        ]);
        const mine = listed(family, "ours").find((rule) => rule.chain === `c${i}`);
        const want = theirs.find((rule) => rule.chain === `c${i}`);
        expect(mine?.comment).toBe(`mark-${i}`);
        expect(settled(mine?.expr)).toEqual(settled(want?.expr));
      });
  });

test("nft lists our tables, base chains, sets and maps like its own", () => {
  const base = (hook: BaseChain["hook"], priority: number, type: BaseChain["type"] = "filter"): BaseChain => ({
    type,
    hook,
    priority,
    policy: "accept",
  });
  const text = (table: string) => `table ip ${table} {
    set a { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 11.0.0.0/8, 192.0.2.1, 255.255.255.0/24 } }
    set b { type ipv4_addr . inet_proto . inet_service; elements = { 192.0.2.1 . tcp . 80, 192.0.2.2 . udp . 53 } }
    set c { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/24 . 80-90 } }
    set e { type ipv4_addr; elements = { 192.0.2.1 } }
    map f { type ifname : verdict; elements = { "cali1" : goto regular, "cali2" : drop } }
    map g { type ipv4_addr : ipv4_addr; elements = { 192.0.2.1 : 10.0.0.1 } }
    chain regular { }
    chain early { type filter hook prerouting priority -300; policy accept; }
    chain inward { type filter hook input priority 0; policy accept; }
    chain forwarded { type filter hook forward priority 0; policy accept; }
    chain outward { type route hook output priority -150; policy accept; }
    chain late { type nat hook postrouting priority 110; policy accept; }
  }`;
  namespace.run("nft", ["-f", "-"], text("theirs"));
  const table = { family: "ip", name: "ours" } as const;
  const v4Bytes = (text: string) => addressBytes(address(text));
  const flow = (ip: string, protocol: number, port: number) => ({
    key: concatenate(v4Bytes(ip), Uint8Array.of(protocol), serviceBytes(port)),
  });
  nft.commit([
    { op: "addTable", table },
    { op: "addSet", table, set: "a", type: { key: ["ipv4_addr"], interval: true } },
    {
      op: "addElements",
      table,
      set: "a",
      elements: ["10.0.0.0/8", "11.0.0.0/8", "192.0.2.1/32", "255.255.255.0/24"].flatMap((c) =>
        prefixElements(cidr(c)),
      ),
    },
    { op: "addSet", table, set: "b", type: { key: ["ipv4_addr", "inet_proto", "inet_service"] } },
    { op: "addElements", table, set: "b", elements: [flow("192.0.2.1", 6, 80), flow("192.0.2.2", 17, 53)] },
    { op: "addSet", table, set: "c", type: { key: ["ipv4_addr", "inet_service"], interval: true } },
    {
      op: "addElements",
      table,
      set: "c",
      elements: [
        {
          key: concatenate(v4Bytes("192.0.2.0"), serviceBytes(80)),
          lastKey: concatenate(v4Bytes("192.0.2.255"), serviceBytes(90)),
        },
      ],
    },
    { op: "addSet", table, set: "e", type: { key: ["ipv4_addr"] } },
    { op: "addElements", table, set: "e", elements: [{ key: v4Bytes("192.0.2.1") }] },
    { op: "addChain", table, chain: "regular" },
    { op: "addSet", table, set: "f", type: { key: ["ifname"], value: "verdict" } },
    {
      op: "addElements",
      table,
      set: "f",
      elements: [
        { key: interfaceNameBytes("cali1"), value: { kind: "goto", chain: "regular" } },
        { key: interfaceNameBytes("cali2"), value: { kind: "drop" } },
      ],
    },
    { op: "addSet", table, set: "g", type: { key: ["ipv4_addr"], value: ["ipv4_addr"] } },
    { op: "addElements", table, set: "g", elements: [{ key: v4Bytes("192.0.2.1"), value: v4Bytes("10.0.0.1") }] },
    { op: "addChain", table, chain: "early", base: base("prerouting", -300) },
    { op: "addChain", table, chain: "inward", base: base("input", 0) },
    { op: "addChain", table, chain: "forwarded", base: base("forward", 0) },
    { op: "addChain", table, chain: "outward", base: base("output", -150, "route") },
    { op: "addChain", table, chain: "late", base: base("postrouting", 110, "nat") },
  ]);
  const list = (name: string) =>
    namespace
      .run("nft", ["-s", "list", "table", "ip", name])
      .replace(name, "table")
      .replace(/elements = \{([^}]*)\}/g, (_, inner: string) =>
        inner
          .split(",")
          .map((e) => e.trim())
          .sort()
          .join(", "),
      );
  expect(list("ours")).toBe(list("theirs"));
});
