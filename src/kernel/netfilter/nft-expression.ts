// Encodes the expressions of nftables rules. The kernel executes a rule as a list of instructions over registers;
// nft-match.ts builds the usual combinations.
//
// Numbers are those of include/uapi/linux/netfilter/nf_tables.h. Integers in nftables attributes are big-endian; registers
// contain packet fields in network byte order and kernel values in host byte order.
import { unreachable } from "../../lib/unreachable.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { writeVerdict, type Verdict } from "./nft-verdict.ts";
import type { InlineSet } from "./nft-set.ts";

/**
 * Registers 1 to 4 have 16 bytes each; 8 to 23 are the same memory in words of 4 bytes (8 is the first word of register 1).
 * The default is register 1.
 */
export type Register = number;
const REG_1: Register = 1;

export type PayloadBase = "link" | "network" | "transport";
export type Comparison = "eq" | "neq" | "lte" | "gte";
export type MetaKey = "mark" | "iifname" | "oifname" | "nfproto" | "l4proto";
export type CtKey = "state" | "status";
export type LimitUnit = "second" | "minute" | "hour" | "day";
export type FibInput = "saddr" | "daddr" | "mark" | "iif" | "oif";

export type Expression =
  | { readonly kind: "meta"; readonly key: MetaKey; readonly to?: Register }
  | { readonly kind: "metaSet"; readonly key: MetaKey }
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
      /** Offset of the 16-bit Internet checksum to update, from the same base. */
      readonly checksumOffset?: number;
    }
  | { readonly kind: "ct"; readonly key: CtKey }
  | { readonly kind: "cmp"; readonly op: Comparison; readonly data: Uint8Array }
  | { readonly kind: "range"; readonly outside: boolean; readonly first: Uint8Array; readonly last: Uint8Array }
  /** register = (register & mask) ^ xor */
  | { readonly kind: "bitwise"; readonly mask: Uint8Array; readonly xor: Uint8Array }
  | {
      readonly kind: "lookup";
      /** Name of a set of the table, or a set that exists only in this rule. */
      readonly set: string | InlineSet;
      readonly inverted?: boolean;
      readonly from?: Register;
      /** For maps: the register for the value, or `verdict` for verdict maps. */
      readonly to?: Register | "verdict";
    }
  | { readonly kind: "immediate"; readonly data: Uint8Array; readonly to?: Register }
  | { readonly kind: "verdict"; readonly verdict: Verdict }
  | { readonly kind: "counter" }
  | {
      readonly kind: "limit";
      readonly rate: number;
      readonly unit: LimitUnit;
      readonly burst: number;
      /** Matches packets that exceed the rate, instead of those within the rate. */
      readonly over?: boolean;
    }
  | { readonly kind: "connlimit"; readonly count: number; readonly over: boolean }
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
  | { readonly kind: "reject"; readonly with: "icmp" | "tcp-reset"; readonly code?: number }
  | { readonly kind: "fib"; readonly by: readonly FibInput[]; readonly result: "oif" | "type" }
  | { readonly kind: "notrack" }
  | { readonly kind: "offload"; readonly flowtable: string };

/** Returns the ID of an inline set in this batch, by which the lookup refers to it. */
export type InlineSetId = (set: InlineSet) => number;

const NFTA_LIST_ELEM = 1;
const NFTA_EXPR_NAME = 1;
const NFTA_EXPR_DATA = 2;
const NFTA_DATA_VALUE = 1;

const META: Readonly<Record<MetaKey, number>> = { mark: 3, iifname: 6, oifname: 7, nfproto: 15, l4proto: 16 };
const CT: Readonly<Record<CtKey, number>> = { state: 0, status: 2 };
const BASE: Readonly<Record<PayloadBase, number>> = { link: 0, network: 1, transport: 2 };
const COMPARE: Readonly<Record<Comparison, number>> = { eq: 0, neq: 1, lte: 3, gte: 5 };
const SECONDS: Readonly<Record<LimitUnit, number>> = { second: 1, minute: 60, hour: 3600, day: 86400 };
const REJECT: Readonly<Record<"icmp" | "tcp-reset", number>> = { icmp: 0, "tcp-reset": 1 };
const FIB_FLAG: Readonly<Record<FibInput, number>> = { saddr: 1, daddr: 2, mark: 4, iif: 8, oif: 16 };
const FIB_RESULT: Readonly<Record<"oif" | "type", number>> = { oif: 1, type: 3 };
const NF_NAT_RANGE_PROTO_SPECIFIED = 2;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY = 16;

/** Writes one element of NFTA_RULE_EXPRESSIONS. */
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
  cmp: "cmp",
  range: "range",
  bitwise: "bitwise",
  lookup: "lookup",
  immediate: "immediate",
  verdict: "immediate",
  counter: "counter",
  limit: "limit",
  connlimit: "connlimit",
  log: "log",
  nflog: "log",
  nat: "nat",
  masquerade: "masq",
  reject: "reject",
  fib: "fib",
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
      w.be32(3, REG_1); // NFTA_META_SREG
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
      w.be32(1, REG_1); // NFTA_CT_DREG
      return;
    case "cmp":
      w.be32(1, REG_1); // NFTA_CMP_SREG
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
      w.be32(1, 0); // NFTA_IMMEDIATE_DREG: the verdict register
      writeVerdict(w, 2, e.verdict);
      return;
    }
    case "counter":
      w.be64(1, 0); // NFTA_COUNTER_BYTES
      w.be64(2, 0); // NFTA_COUNTER_PACKETS
      return;
    case "limit":
      w.be64(1, BigInt(e.rate)); // NFTA_LIMIT_RATE
      w.be64(2, BigInt(SECONDS[e.unit])); // NFTA_LIMIT_UNIT
      w.be32(3, e.burst); // NFTA_LIMIT_BURST
      w.be32(4, 0); // NFTA_LIMIT_TYPE: packets
      w.be32(5, e.over === true ? 1 : 0); // NFTA_LIMIT_FLAGS
      return;
    case "connlimit":
      w.be32(1, e.count); // NFTA_CONNLIMIT_COUNT
      w.be32(2, e.over ? 1 : 0); // NFTA_CONNLIMIT_FLAGS
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
      if (e.address !== undefined) w.be32(3, e.address); // NFTA_NAT_REG_ADDR_MIN
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
      w.be32(1, REG_1); // NFTA_FIB_DREG
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
