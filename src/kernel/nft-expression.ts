// Rules as the kernel runs them: small instructions over registers. A rule is a list of these; the constructors of
// nft-match.ts write the usual combinations. Numbers are those of <linux/netfilter/nf_tables.h>; netlink integers of
// nf_tables are big-endian, register contents are as the packet or the kernel has them.
import { unreachable } from "../lib/unreachable.ts";
import type { NetlinkWriter } from "./netlink-writer.ts";
import { writeVerdict, type Verdict } from "./nft-verdict.ts";
import type { InlineSet } from "./nft-set.ts";

/**
 * 1..4 hold 16 bytes each; 8..23 are the same memory in words of 4 bytes (8 begins register 1). Every expression
 * uses register 1 unless told otherwise.
 */
export type Register = number;
const REG_1: Register = 1;

export type PayloadBase = "link" | "network" | "transport";
export type Comparison = "eq" | "neq" | "lt" | "lte" | "gt" | "gte";
export type MetaKey = "mark" | "iif" | "oif" | "iifname" | "oifname" | "nfproto" | "l4proto" | "protocol" | "skuid";
export type CtKey = "state" | "direction" | "status" | "mark" | "protoSource" | "protoDestination";
export type LimitUnit = "second" | "minute" | "hour" | "day";
export type FibInput = "saddr" | "daddr" | "mark" | "iif" | "oif";

export type Expression =
  | { readonly kind: "meta"; readonly key: MetaKey; readonly to?: Register }
  | { readonly kind: "metaSet"; readonly key: MetaKey; readonly from?: Register }
  | {
      readonly kind: "payload";
      readonly base: PayloadBase;
      readonly offset: number;
      readonly length: number;
      readonly to?: Register;
    }
  | {
      readonly kind: "payloadWrite";
      readonly base: PayloadBase;
      readonly offset: number;
      readonly length: number;
      /** Where the 16-bit Internet checksum to correct lies, from the same base. */
      readonly checksumOffset?: number;
    }
  | { readonly kind: "ct"; readonly key: CtKey; readonly direction?: "original" | "reply"; readonly to?: Register }
  | { readonly kind: "ctSet"; readonly key: "mark"; readonly from?: Register }
  | { readonly kind: "cmp"; readonly op: Comparison; readonly data: Uint8Array; readonly from?: Register }
  | { readonly kind: "range"; readonly outside: boolean; readonly first: Uint8Array; readonly last: Uint8Array }
  /** register = (register & mask) ^ xor */
  | { readonly kind: "bitwise"; readonly mask: Uint8Array; readonly xor: Uint8Array }
  | {
      readonly kind: "lookup";
      /** A set of the table by name, or one that lives and dies with the rule. */
      readonly set: string | InlineSet;
      readonly inverted?: boolean;
      readonly from?: Register;
      /** For maps: where the value goes; `verdict` for verdict maps. */
      readonly to?: Register | "verdict";
    }
  | { readonly kind: "immediate"; readonly data: Uint8Array; readonly to?: Register }
  | { readonly kind: "verdict"; readonly verdict: Verdict }
  | { readonly kind: "counter"; readonly packets?: bigint; readonly bytes?: bigint }
  | {
      readonly kind: "limit";
      readonly rate: number;
      readonly unit: LimitUnit;
      readonly burst: number;
      readonly bytes?: boolean;
      /** Matches what exceeds the rate instead of what stays below. */
      readonly over?: boolean;
    }
  | { readonly kind: "connlimit"; readonly count: number; readonly over: boolean }
  | { readonly kind: "quota"; readonly bytes: number; readonly over: boolean }
  | { readonly kind: "log"; readonly prefix: string; readonly level: number }
  | { readonly kind: "nflog"; readonly prefix: string; readonly group: number; readonly snapLength?: number }
  | {
      readonly kind: "nat";
      readonly type: "snat" | "dnat";
      readonly family: 4 | 6;
      readonly address?: Register;
      readonly port?: Register;
      readonly lastPort?: Register;
      readonly fullyRandom?: boolean;
    }
  | {
      readonly kind: "masquerade";
      readonly port?: Register;
      readonly lastPort?: Register;
      readonly fullyRandom?: boolean;
    }
  | { readonly kind: "reject"; readonly with: "icmp" | "icmpx" | "tcp-reset"; readonly code?: number }
  | {
      readonly kind: "fib";
      readonly by: readonly FibInput[];
      readonly result: "oif" | "oifname" | "type";
      readonly to?: Register;
    }
  /** `present`: 1 in the register when the IPv6 extension header is there. */
  | { readonly kind: "exthdr"; readonly header: number; readonly to?: Register }
  | { readonly kind: "notrack" }
  | { readonly kind: "offload"; readonly flowtable: string };

/** The set a rule's inline set was given in this batch: the kernel's lookup finds it by id. */
export type InlineSetId = (set: InlineSet) => number;

const NFTA_LIST_ELEM = 1;
const NFTA_EXPR_NAME = 1;
const NFTA_EXPR_DATA = 2;
const NFTA_DATA_VALUE = 1;

const META: Readonly<Record<MetaKey, number>> = {
  protocol: 1,
  mark: 3,
  iif: 4,
  oif: 5,
  iifname: 6,
  oifname: 7,
  skuid: 10,
  nfproto: 15,
  l4proto: 16,
};
const CT: Readonly<Record<CtKey, number>> = {
  state: 0,
  direction: 1,
  status: 2,
  mark: 3,
  protoSource: 11,
  protoDestination: 12,
};
const BASE: Readonly<Record<PayloadBase, number>> = { link: 0, network: 1, transport: 2 };
const COMPARE: Readonly<Record<Comparison, number>> = { eq: 0, neq: 1, lt: 2, lte: 3, gt: 4, gte: 5 };
const SECONDS: Readonly<Record<LimitUnit, number>> = { second: 1, minute: 60, hour: 3600, day: 86400 };
const REJECT: Readonly<Record<"icmp" | "icmpx" | "tcp-reset", number>> = { icmp: 0, "tcp-reset": 1, icmpx: 2 };
const FIB_FLAG: Readonly<Record<FibInput, number>> = { saddr: 1, daddr: 2, mark: 4, iif: 8, oif: 16 };
const FIB_RESULT: Readonly<Record<"oif" | "oifname" | "type", number>> = { oif: 1, oifname: 2, type: 3 };
const NF_NAT_RANGE_PROTO_SPECIFIED = 2;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 16;

/** One expression as an element of NFTA_RULE_EXPRESSIONS. */
export function writeExpression(w: NetlinkWriter, e: Expression, inlineSetId: InlineSetId): void {
  const element = w.beginNest(NFTA_LIST_ELEM);
  w.string(NFTA_EXPR_NAME, KERNEL_NAME[e.kind]);
  if (e.kind !== "notrack") {
    const data = w.beginNest(NFTA_EXPR_DATA);
    writeBody(w, e, inlineSetId);
    w.endNest(data);
  }
  w.endNest(element);
}

const KERNEL_NAME: Readonly<Record<Expression["kind"], string>> = {
  meta: "meta",
  metaSet: "meta",
  payload: "payload",
  payloadWrite: "payload",
  ct: "ct",
  ctSet: "ct",
  cmp: "cmp",
  range: "range",
  bitwise: "bitwise",
  lookup: "lookup",
  immediate: "immediate",
  verdict: "immediate",
  counter: "counter",
  limit: "limit",
  connlimit: "connlimit",
  quota: "quota",
  log: "log",
  nflog: "log",
  nat: "nat",
  masquerade: "masq",
  reject: "reject",
  fib: "fib",
  exthdr: "exthdr",
  notrack: "notrack",
  offload: "flow_offload",
};

function writeBody(w: NetlinkWriter, e: Exclude<Expression, { kind: "notrack" }>, inlineSetId: InlineSetId): void {
  switch (e.kind) {
    case "meta":
      w.be32(2, META[e.key]); // NFTA_META_KEY
      w.be32(1, e.to ?? REG_1); // NFTA_META_DREG
      return;
    case "metaSet":
      w.be32(2, META[e.key]);
      w.be32(3, e.from ?? REG_1); // NFTA_META_SREG
      return;
    case "payload":
      w.be32(1, e.to ?? REG_1); // NFTA_PAYLOAD_DREG
      w.be32(2, BASE[e.base]); // NFTA_PAYLOAD_BASE
      w.be32(3, e.offset); // NFTA_PAYLOAD_OFFSET
      w.be32(4, e.length); // NFTA_PAYLOAD_LEN
      return;
    case "payloadWrite":
      w.be32(5, REG_1); // NFTA_PAYLOAD_SREG
      w.be32(2, BASE[e.base]);
      w.be32(3, e.offset);
      w.be32(4, e.length);
      w.be32(6, e.checksumOffset === undefined ? 0 : 1); // NFTA_PAYLOAD_CSUM_TYPE: none, Internet
      if (e.checksumOffset !== undefined) w.be32(7, e.checksumOffset); // NFTA_PAYLOAD_CSUM_OFFSET
      return;
    case "ct":
      w.be32(2, CT[e.key]); // NFTA_CT_KEY
      w.be32(1, e.to ?? REG_1); // NFTA_CT_DREG
      if (e.direction !== undefined) w.u8(3, e.direction === "original" ? 0 : 1); // NFTA_CT_DIRECTION
      return;
    case "ctSet":
      w.be32(2, CT[e.key]);
      w.be32(4, e.from ?? REG_1); // NFTA_CT_SREG
      return;
    case "cmp":
      w.be32(1, e.from ?? REG_1); // NFTA_CMP_SREG
      w.be32(2, COMPARE[e.op]); // NFTA_CMP_OP
      writeValue(w, 3, e.data); // NFTA_CMP_DATA
      return;
    case "range":
      w.be32(1, REG_1); // NFTA_RANGE_SREG
      w.be32(2, e.outside ? 1 : 0); // NFTA_RANGE_OP
      writeValue(w, 3, e.first); // NFTA_RANGE_FROM_DATA
      writeValue(w, 4, e.last); // NFTA_RANGE_TO_DATA
      return;
    case "bitwise":
      w.be32(1, REG_1); // NFTA_BITWISE_SREG
      w.be32(2, REG_1); // NFTA_BITWISE_DREG
      w.be32(3, e.mask.length); // NFTA_BITWISE_LEN
      w.be32(6, 0); // NFTA_BITWISE_OP: mask and xor
      writeValue(w, 4, e.mask); // NFTA_BITWISE_MASK
      writeValue(w, 5, e.xor); // NFTA_BITWISE_XOR
      return;
    case "lookup":
      w.be32(2, e.from ?? REG_1); // NFTA_LOOKUP_SREG
      if (e.to !== undefined) w.be32(3, e.to === "verdict" ? 0 : e.to); // NFTA_LOOKUP_DREG
      if (typeof e.set === "string")
        w.string(1, e.set); // NFTA_LOOKUP_SET
      else {
        w.string(1, "__set%d");
        w.be32(4, inlineSetId(e.set)); // NFTA_LOOKUP_SET_ID
      }
      if (e.inverted === true) w.be32(5, 1); // NFTA_LOOKUP_FLAGS
      return;
    case "immediate":
      w.be32(1, e.to ?? REG_1); // NFTA_IMMEDIATE_DREG
      writeValue(w, 2, e.data); // NFTA_IMMEDIATE_DATA
      return;
    case "verdict": {
      w.be32(1, 0); // the verdict register
      writeVerdict(w, 2, e.verdict);
      return;
    }
    case "counter":
      w.be64(1, e.bytes ?? 0); // NFTA_COUNTER_BYTES
      w.be64(2, e.packets ?? 0); // NFTA_COUNTER_PACKETS
      return;
    case "limit":
      w.be64(1, BigInt(e.rate)); // NFTA_LIMIT_RATE
      w.be64(2, BigInt(SECONDS[e.unit])); // NFTA_LIMIT_UNIT
      w.be32(3, e.burst); // NFTA_LIMIT_BURST
      w.be32(4, e.bytes === true ? 1 : 0); // NFTA_LIMIT_TYPE
      w.be32(5, e.over === true ? 1 : 0); // NFTA_LIMIT_FLAGS
      return;
    case "connlimit":
      w.be32(1, e.count); // NFTA_CONNLIMIT_COUNT
      w.be32(2, e.over ? 1 : 0); // NFTA_CONNLIMIT_FLAGS
      return;
    case "quota":
      w.be64(1, BigInt(e.bytes)); // NFTA_QUOTA_BYTES
      w.be32(2, e.over ? 1 : 0); // NFTA_QUOTA_FLAGS
      return;
    case "log":
      w.string(2, e.prefix); // NFTA_LOG_PREFIX
      w.be32(5, e.level); // NFTA_LOG_LEVEL
      return;
    case "nflog":
      w.be16(1, e.group); // NFTA_LOG_GROUP
      w.string(2, e.prefix);
      if (e.snapLength !== undefined) w.be32(3, e.snapLength); // NFTA_LOG_SNAPLEN
      return;
    case "nat":
      w.be32(1, e.type === "snat" ? 0 : 1); // NFTA_NAT_TYPE
      w.be32(2, e.family === 4 ? 2 : 10); // NFTA_NAT_FAMILY
      if (e.address !== undefined) {
        w.be32(3, e.address); // NFTA_NAT_REG_ADDR_MIN
      }
      if (e.port !== undefined) w.be32(5, e.port); // NFTA_NAT_REG_PROTO_MIN
      if (e.lastPort !== undefined) w.be32(6, e.lastPort); // NFTA_NAT_REG_PROTO_MAX
      writeNatFlags(w, 7, e);
      return;
    case "masquerade":
      writeNatFlags(w, 1, e);
      if (e.port !== undefined) w.be32(2, e.port); // NFTA_MASQ_REG_PROTO_MIN
      if (e.lastPort !== undefined) w.be32(3, e.lastPort); // NFTA_MASQ_REG_PROTO_MAX
      return;
    case "reject":
      w.be32(1, REJECT[e.with]); // NFTA_REJECT_TYPE
      if (e.with !== "tcp-reset") w.u8(2, e.code ?? 0); // NFTA_REJECT_ICMP_CODE
      return;
    case "fib":
      w.be32(
        3,
        e.by.reduce((flags, input) => flags | FIB_FLAG[input], 0),
      ); // NFTA_FIB_FLAGS
      w.be32(2, FIB_RESULT[e.result]); // NFTA_FIB_RESULT
      w.be32(1, e.to ?? REG_1); // NFTA_FIB_DREG
      return;
    case "exthdr":
      w.be32(1, e.to ?? REG_1); // NFTA_EXTHDR_DREG
      w.u8(2, e.header); // NFTA_EXTHDR_TYPE
      w.be32(3, 0); // NFTA_EXTHDR_OFFSET
      w.be32(4, 1); // NFTA_EXTHDR_LEN
      w.be32(6, 0); // NFTA_EXTHDR_OP: IPv6
      w.be32(5, 1); // NFTA_EXTHDR_FLAGS: present
      return;
    case "offload":
      w.string(1, e.flowtable); // NFTA_FLOW_TABLE_NAME
      return;
    default:
      unreachable(e);
  }
}

function writeValue(w: NetlinkWriter, attribute: number, data: Uint8Array): void {
  const nest = w.beginNest(attribute);
  w.bytes(NFTA_DATA_VALUE, data);
  w.endNest(nest);
}

function writeNatFlags(
  w: NetlinkWriter,
  attribute: number,
  e: { readonly port?: Register; readonly fullyRandom?: boolean },
): void {
  const flags =
    (e.port === undefined ? 0 : NF_NAT_RANGE_PROTO_SPECIFIED) |
    (e.fullyRandom === true ? NF_NAT_RANGE_PROTO_RANDOM_FULLY : 0);
  if (flags !== 0) w.be32(attribute, flags);
}
