// Builds the expressions of nftables matches and statements. Each function returns what `nft` compiles from the text in its
// comment; functional tests check this (test/functional/kernel/nft-expressions.test.ts).
import {
  addressBytes,
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpAddress,
  type IpVersion,
  ipVersion,
} from "../../lib/ip/ip.ts";
import type { Comparison, Expression, FibInput, LimitUnit } from "./nft-expression.ts";
import { hostWord, interfaceNameBytes, type InlineSet, rangeElements, serviceBytes } from "./nft-set.ts";
import type { Verdict } from "./nft-verdict.ts";

export type Side = "source" | "destination";
type Expressions = readonly Expression[];

const equality = (negated: boolean): Comparison => (negated ? "neq" : "eq");

// --- packet fields -------------------------------------------------------------------------------------------------

/** `iifname "eth0"`, `oifname "cali*"`: a trailing `*` matches any suffix. */
export function interfaceName(direction: "in" | "out", name: string, negated = false): Expressions {
  const data = name.endsWith("*") ? new TextEncoder().encode(name.slice(0, -1)) : interfaceNameBytes(name);
  return [
    { kind: "meta", key: direction === "in" ? "iifname" : "oifname" },
    { kind: "cmp", op: equality(negated), data },
  ];
}

const NFPROTO = { 4: 2, 6: 10 } as const;
/** `meta nfproto ipv4`, in a table of family inet */
export const family = (version: IpVersion): Expressions => [
  { kind: "meta", key: "nfproto" },
  { kind: "cmp", op: "eq", data: Uint8Array.of(NFPROTO[version]) },
];

/** `meta l4proto tcp` */
export const protocol = (number: number, negated = false): Expressions => [
  { kind: "meta", key: "l4proto" },
  { kind: "cmp", op: equality(negated), data: Uint8Array.of(number) },
];

function loadAddress(version: IpVersion, side: Side, register?: number): Expression {
  const offset = version === 4 ? (side === "source" ? 12 : 16) : side === "source" ? 8 : 24;
  const load = { kind: "payload", base: "network", offset, length: version === 4 ? 4 : 16 } as const;
  return register === undefined ? load : { ...load, to: register };
}

/** `ip saddr 10.0.0.0/8`, `ip6 daddr != fd00::1` */
export function prefix(side: Side, cidr: Cidr, negated = false): Expressions {
  const version = ipVersion(cidr);
  const length = cidrLength(cidr);
  const address = addressBytes(cidrAddress(cidr));
  const load = loadAddress(version, side);
  const op = equality(negated);
  if (length === address.length * 8) return [load, { kind: "cmp", op, data: address }];
  // A prefix of whole bytes needs no mask, only a shorter load. nft prints both forms in the same way.
  if (length % 8 === 0 && length > 0 && load.kind === "payload")
    return [
      { ...load, length: length / 8 },
      { kind: "cmp", op, data: address.subarray(0, length / 8) },
    ];
  const mask = new Uint8Array(address.length);
  for (let bit = 0; bit < length; bit++) mask[bit >> 3] = (mask[bit >> 3] ?? 0) | (0x80 >> (bit & 7));
  return [load, { kind: "bitwise", mask, xor: new Uint8Array(address.length) }, { kind: "cmp", op, data: address }];
}

/** `ip saddr 10.0.0.1` */
export const address = (side: Side, ip: IpAddress): Expressions => [
  loadAddress(ipVersion(ip), side),
  { kind: "cmp", op: "eq", data: addressBytes(ip) },
];

/** `ip saddr @set`, or with an inline set `ip saddr { 10.0.0.0/8, 192.0.2.1 }` */
export const addressInSet = (version: IpVersion, side: Side, set: string | InlineSet, negated = false): Expressions => [
  loadAddress(version, side),
  { kind: "lookup", set, inverted: negated },
];

/** `ip daddr . meta l4proto . th dport @set` */
export function addressAndPortInSet(version: IpVersion, side: Side, set: string, negated = false): Expressions {
  const first = 8; // the first word of register 1
  const next = first + (version === 4 ? 1 : 4);
  return [
    loadAddress(version, side, first),
    { kind: "meta", key: "l4proto", to: next },
    { kind: "payload", base: "transport", offset: side === "source" ? 0 : 2, length: 2, to: next + 1 },
    { kind: "lookup", set, from: first, inverted: negated },
  ];
}

/**
 * `meta mark & 7 | 7 . th dport @set`: a constant and the port. nft cannot list a plain constant in a concatenation, but it
 * can list this form and read it back. The protocol must have been matched before.
 */
export function constantAndPortInSet(constant: number, side: Side, set: string, negated = false): Expressions {
  const first = 8; // the first word of register 1
  return [
    { kind: "meta", key: "mark" },
    { kind: "bitwise", mask: hostWord(0), xor: hostWord(constant) },
    { kind: "payload", base: "transport", offset: side === "source" ? 0 : 2, length: 2, to: first + 1 },
    { kind: "lookup", set, from: first, inverted: negated },
  ];
}

export interface Ports {
  readonly first: number;
  readonly last: number;
}

/** `th dport 80`, `th sport != 1-1023`, `th dport { 80, 8000-8080 }`; the protocol must have been matched before. */
export function ports(side: Side, ranges: readonly Ports[], negated = false): Expressions {
  const load: Expression = { kind: "payload", base: "transport", offset: side === "source" ? 0 : 2, length: 2 };
  const [only] = ranges;
  if (ranges.length !== 1 || only === undefined)
    return [load, { kind: "lookup", set: portSet(ranges), inverted: negated }];
  const first = serviceBytes(only.first);
  if (only.first === only.last) return [load, { kind: "cmp", op: equality(negated), data: first }];
  const last = serviceBytes(only.last);
  if (negated) return [load, { kind: "range", outside: true, first, last }];
  return [load, { kind: "cmp", op: "gte", data: first }, { kind: "cmp", op: "lte", data: last }];
}

/**
 * Above this, single ports are encoded as intervals. For a set of single ports the kernel uses a bitmap, and searches a list
 * for each added port: 30,000 ports take 7 s (`nft_set_bitmap.c`).
 */
const MAX_SINGLE_PORTS = 100;

/** An inline set of port ranges. Overlapping and adjacent ranges are merged, because the kernel rejects overlaps. */
export function portSet(ranges: readonly Ports[]): InlineSet {
  if (ranges.length <= MAX_SINGLE_PORTS && ranges.every(({ first, last }) => first === last)) {
    const single = [...new Set(ranges.map(({ first }) => first))].sort((a, b) => a - b);
    return { type: { key: ["inet_service"] }, elements: single.map((port) => ({ key: serviceBytes(port) })) };
  }
  return {
    type: { key: ["inet_service"], interval: true },
    elements: mergePorts(ranges).flatMap(({ first, last }) => rangeElements(serviceBytes(first), serviceBytes(last))),
  };
}

function mergePorts(ranges: readonly Ports[]): Ports[] {
  const merged: { first: number; last: number }[] = [];
  for (const { first, last } of ranges.toSorted((a, b) => a.first - b.first)) {
    const previous = merged.at(-1);
    if (previous !== undefined && first <= previous.last + 1) previous.last = Math.max(previous.last, last);
    else merged.push({ first, last });
  }
  return merged;
}

/**
 * `icmp type 8`, `icmpv6 type 1 icmpv6 code 4`. If negated, matches every other combination of type and code. The protocol
 * must have been matched before.
 */
export function icmpType(type: number, code?: number, negated = false): Expressions {
  const data = code === undefined ? Uint8Array.of(type) : Uint8Array.of(type, code);
  return [
    { kind: "payload", base: "transport", offset: 0, length: data.length },
    { kind: "cmp", op: equality(negated), data },
  ];
}

const ARP_OPERATION = { base: "network", offset: 6, length: 2 } as const;
const ARP_SENDER = { base: "network", offset: 14, length: 4 } as const;
/** `arp operation reply arp saddr ip 10.0.0.1`, in a table of family arp */
export const arpReply = (sender: IpAddress): Expressions => [
  { kind: "payload", ...ARP_OPERATION },
  { kind: "cmp", op: "eq", data: serviceBytes(2) },
  { kind: "payload", ...ARP_SENDER },
  { kind: "cmp", op: "eq", data: addressBytes(sender) },
];

// --- marks and connection tracking -----------------------------------------------------------------------------------

/** `meta mark & 0x30000 == 0x10000` */
export const markIs = (value: number, mask: number, negated = false): Expressions => [
  { kind: "meta", key: "mark" },
  { kind: "bitwise", mask: hostWord(mask), xor: hostWord(0) },
  { kind: "cmp", op: equality(negated), data: hostWord(value) },
];

/** `meta mark set meta mark & ~mask | value` */
export const setMark = (value: number, mask: number): Expressions => [
  { kind: "meta", key: "mark" },
  { kind: "bitwise", mask: hostWord(~mask >>> 0), xor: hostWord(value) },
  { kind: "metaSet", key: "mark" },
];

const CT_STATE = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 } as const;
export type CtState = keyof typeof CT_STATE;

/** `ct state established,related` */
export function ctState(states: readonly CtState[], negated = false): Expressions {
  const mask = states.reduce((bits, state) => bits | CT_STATE[state], 0);
  return [
    { kind: "ct", key: "state" },
    { kind: "bitwise", mask: hostWord(mask), xor: hostWord(0) },
    { kind: "cmp", op: negated ? "eq" : "neq", data: hostWord(0) },
  ];
}

const IPS_DST_NAT = 32;
/** `ct status dnat`, or if negated `ct status & dnat == 0`. */
export const ctIsDnat = (negated = false): Expressions => [
  { kind: "ct", key: "status" },
  { kind: "bitwise", mask: hostWord(IPS_DST_NAT), xor: hostWord(0) },
  { kind: "cmp", op: negated ? "eq" : "neq", data: hostWord(0) },
];

/** `ct count over 10` */
export const connectionsOver = (count: number): Expressions => [{ kind: "connlimit", count, over: true }];

// --- routing ------------------------------------------------------------------------------------------------------------

/** `fib saddr . mark . iif oif 0`: the source address has no route through the packet's input interface. */
export const reversePathFails = (): Expressions => [
  { kind: "fib", by: ["saddr", "mark", "iif"], result: "oif" },
  { kind: "cmp", op: "eq", data: hostWord(0) },
];

const RTN_LOCAL = 2;
/** `fib daddr type local`, `fib saddr . oif type != local` */
export const addressIsLocal = (side: Side, negated = false, onInterface?: "iif" | "oif"): Expressions => {
  const by: FibInput[] = [side === "source" ? "saddr" : "daddr"];
  if (onInterface !== undefined) by.push(onInterface);
  return [
    { kind: "fib", by, result: "type" },
    { kind: "cmp", op: equality(negated), data: hostWord(RTN_LOCAL) },
  ];
};

// --- statements -----------------------------------------------------------------------------------------------------------

export const counter: Expression = { kind: "counter" };
export const verdict = (v: Verdict): Expression => ({ kind: "verdict", verdict: v });
export const accept: Expression = verdict({ kind: "accept" });
export const drop: Expression = verdict({ kind: "drop" });
export const returnToCaller: Expression = verdict({ kind: "return" });
export const jump = (chain: string): Expression => verdict({ kind: "jump", chain });
export const goto = (chain: string): Expression => verdict({ kind: "goto", chain });
export const notrack: Expression = { kind: "notrack" };

/** `limit rate 10/second burst 5 packets`, `limit rate over …` */
export const rateLimit = (rate: number, unit: LimitUnit, burst: number, over = false): Expression => ({
  kind: "limit",
  rate,
  unit,
  burst,
  over,
});

/** `iifname vmap @map` */
export const interfaceVerdict = (direction: "in" | "out", map: string): Expressions => [
  { kind: "meta", key: direction === "in" ? "iifname" : "oifname" },
  { kind: "lookup", set: map, to: "verdict" },
];

/** `reject`: ICMP port unreachable, the default of both families. */
export const reject = (version: IpVersion): Expression => ({
  kind: "reject",
  with: "icmp",
  code: version === 4 ? 3 : 4,
});
export const rejectTcp: Expression = { kind: "reject", with: "tcp-reset" };

/** `masquerade [to :1024-65535] [fully-random]` */
export function masquerade(options: { readonly ports?: Ports; readonly fullyRandom?: boolean } = {}): Expressions {
  const fullyRandom = options.fullyRandom === true;
  if (options.ports === undefined) return [{ kind: "masquerade", fullyRandom }];
  return [
    { kind: "immediate", data: serviceBytes(options.ports.first), to: 1 },
    { kind: "immediate", data: serviceBytes(options.ports.last), to: 2 },
    { kind: "masquerade", port: 1, lastPort: 2, fullyRandom },
  ];
}

/** `snat to 192.0.2.1:1024-65535 fully-random`, `dnat to 10.0.0.1:80` */
export function translate(
  type: "snat" | "dnat",
  address: IpAddress,
  options: { readonly ports?: Ports; readonly fullyRandom?: boolean } = {},
): Expressions {
  const family = ipVersion(address);
  const fullyRandom = options.fullyRandom === true;
  const load: Expression = { kind: "immediate", data: addressBytes(address), to: 1 };
  if (options.ports === undefined) return [load, { kind: "nat", type, family, address: 1, fullyRandom }];
  const { first, last } = options.ports;
  const port: Expression = { kind: "immediate", data: serviceBytes(first), to: 2 };
  if (first === last) return [load, port, { kind: "nat", type, family, address: 1, port: 2, fullyRandom }];
  return [
    load,
    port,
    { kind: "immediate", data: serviceBytes(last), to: 3 },
    { kind: "nat", type, family, address: 1, port: 2, lastPort: 3, fullyRandom },
  ];
}

/** `ip dscp set 20`, `ip6 dscp set 20`: loads the two bytes that contain the field, changes them and writes them back. */
export function setDscp(version: IpVersion, value: number): Expressions {
  // IPv4: version and header length, then DSCP and ECN. IPv6: version (4 bits), DSCP, ECN, and the start of the flow label.
  const [mask, xor] =
    version === 4
      ? [Uint8Array.of(0xff, 0x03), Uint8Array.of(0, value << 2)]
      : [Uint8Array.of(0xf0, 0x3f), Uint8Array.of(value >> 2, (value & 3) << 6)];
  const at = { base: "network", offset: 0, length: 2 } as const;
  return [
    { kind: "payload", ...at },
    { kind: "bitwise", mask, xor },
    version === 4 ? { kind: "payloadWrite", ...at, checksumOffset: 10 } : { kind: "payloadWrite", ...at },
  ];
}
