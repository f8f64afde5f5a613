// Parses lists of the nftables ruleset: tables, chains, rules, sets, their elements, and flowtables. The expressions of rules
// are not parsed: a rule of calico-ts is recognized by its comment, which contains a hash of its content.
// Attribute numbers are those of include/uapi/linux/netfilter/nf_tables.h.
import { type NetlinkMessage, NetlinkReader } from "../netlink/netlink-reader.ts";
import type { BaseChain, Hook, NftFamily, TableRef } from "./nft-change.ts";
import { FAMILY } from "./nft-encode.ts";
import type { SetElement } from "./nft-set.ts";
import type { Bytes } from "../sys/sys.ts";
import { type Verdict, verdictFromCode } from "./nft-verdict.ts";

export interface DumpedTable extends TableRef {
  readonly handle: bigint;
  /** The table exists, but its chains process no packets. */
  readonly isDormant: boolean;
}
export interface DumpedChain {
  readonly table: TableRef;
  readonly name: string;
  readonly base?: BaseChain;
}
export interface DumpedRule {
  readonly chain: string;
  readonly handle: bigint;
  readonly comment?: string;
  /** Chains to which the rule jumps; undefined unless requested. */
  readonly targets?: readonly string[];
}
export interface DumpedSet {
  readonly table: TableRef;
  readonly name: string;
  readonly flags: number;
  readonly keyType: number;
}
export interface DumpedFlowtable {
  readonly name: string;
  readonly devices: readonly string[];
}

const FAMILY_NAME = new Map<number, NftFamily>(
  Object.entries(FAMILY).map(([name, number]) => [number, name as NftFamily]),
);
const HOOK_NAME: readonly Hook[] = ["prerouting", "input", "forward", "output", "postrouting"];
const ARP_HOOK_NAME: readonly Hook[] = ["input", "output", "forward"];
const HEADER = 4; // nfgenmsg
const NFT_TABLE_F_DORMANT = 1;

/** Undefined for families that calico-ts does not use (bridge, netdev). */
const familyOf = (message: NetlinkMessage): NftFamily | undefined => FAMILY_NAME.get(message.u8(0));

export function parseTable(message: NetlinkMessage): DumpedTable | undefined {
  const family = familyOf(message);
  if (family === undefined) return undefined;
  const a = message.attributes(HEADER);
  let name = "";
  let handle = 0n;
  let isDormant = false;
  while (a.next()) {
    if (a.type === 1) name = a.string();
    else if (a.type === 2) isDormant = (a.be32() & NFT_TABLE_F_DORMANT) !== 0;
    else if (a.type === 4) handle = a.be64();
  }
  return { family, name, handle, isDormant };
}

export function parseChain(message: NetlinkMessage): DumpedChain | undefined {
  const family = familyOf(message);
  if (family === undefined) return undefined;
  const a = message.attributes(HEADER);
  let table = "";
  let name = "";
  let policy: "accept" | "drop" = "accept";
  let type = "";
  let hook: { hook: Hook; priority: number } | undefined;
  while (a.next()) {
    if (a.type === 1) table = a.string();
    else if (a.type === 3) name = a.string();
    else if (a.type === 4) hook = parseHook(a.nested(), family);
    else if (a.type === 5) policy = a.be32() === 0 ? "drop" : "accept";
    else if (a.type === 7) type = a.string();
  }
  const chain = { table: { family, name: table }, name };
  if (hook === undefined || (type !== "filter" && type !== "nat" && type !== "route")) return chain;
  return { ...chain, base: { type, ...hook, policy } };
}

function parseHook(a: NetlinkReader, family: NftFamily): { hook: Hook; priority: number } | undefined {
  let hook: Hook | undefined;
  let priority = 0;
  while (a.next()) {
    if (a.type === 1) hook = (family === "arp" ? ARP_HOOK_NAME : HOOK_NAME)[a.be32()];
    else if (a.type === 2) priority = a.be32() | 0;
  }
  return hook === undefined ? undefined : { hook, priority };
}

export function parseRule(message: NetlinkMessage, withTargets: boolean): DumpedRule {
  const a = message.attributes(HEADER);
  let chain = "";
  let handle = 0n;
  let comment: string | undefined;
  let targets: string[] | undefined;
  while (a.next()) {
    if (a.type === 2) chain = a.string();
    else if (a.type === 3) handle = a.be64();
    else if (a.type === 4 && withTargets) ({ targets, comment } = readExpressions(a.nested()));
    else if (a.type === 7) comment = commentOf(a.bytes()) ?? comment;
  }
  const rule = comment === undefined ? { chain, handle } : { chain, handle, comment };
  return targets === undefined ? rule : { ...rule, targets };
}

/** User data is a list of (kind, length, value). Kind 0 is the comment. */
function commentOf(userData: Uint8Array): string | undefined {
  for (let at = 0; at + 2 <= userData.length; ) {
    const kind = userData[at];
    const length = userData[at + 1] ?? 0;
    if (kind === 0) {
      const text = userData.subarray(at + 2, at + 2 + length);
      const nul = text.indexOf(0);
      return new TextDecoder().decode(nul < 0 ? text : text.subarray(0, nul));
    }
    at += 2 + length;
  }
  return undefined;
}

/** Returns the chains to which the rule jumps, and the comment of a rule that an iptables tool wrote (match "comment"). */
function readExpressions(list: NetlinkReader): { readonly targets: string[]; readonly comment: string | undefined } {
  const targets: string[] = [];
  let comment: string | undefined;
  while (list.next()) {
    const expression = list.nested();
    let kind = "";
    while (expression.next()) {
      if (expression.type === 1) kind = expression.string();
      else if (expression.type !== 2) continue;
      else if (kind === "immediate") {
        const data = expression.nested();
        while (data.next()) {
          if (data.type !== 2) continue; // NFTA_IMMEDIATE_DATA
          const v = parseVerdict(data.nested());
          if (v !== undefined && "chain" in v) targets.push(v.chain);
        }
      } else if (kind === "match") {
        const data = expression.nested();
        let name = "";
        while (data.next()) {
          if (data.type === 1)
            name = data.string(); // NFTA_MATCH_NAME
          else if (data.type === 3 && name === "comment") comment ??= data.string(); // NFTA_MATCH_INFO
        }
      }
    }
  }
  return { targets, comment };
}

export function parseSet(message: NetlinkMessage): DumpedSet | undefined {
  const family = familyOf(message);
  if (family === undefined) return undefined;
  const a = message.attributes(HEADER);
  let table = "";
  let name = "";
  const found = { flags: 0, keyType: 0 };
  while (a.next()) {
    if (a.type === 1) table = a.string();
    else if (a.type === 2) name = a.string();
    else if (a.type === 3) found.flags = a.be32();
    else if (a.type === 4) found.keyType = a.be32();
  }
  return { table: { family, name: table }, name, ...found };
}

/**
 * Appends the elements of one message to `into`. A set may have a hundred thousand elements, so the usual element (a key and
 * possibly flags) is parsed without a NetlinkReader of its own.
 */
export function parseElements(message: NetlinkMessage, into: SetElement[]): void {
  const { bytes, view } = message;
  const a = message.attributes(HEADER);
  while (a.next()) {
    if (a.type !== 3) continue; // NFTA_SET_ELEM_LIST_ELEMENTS
    const end = a.start + a.length;
    for (let at = a.start; at + 4 <= end; ) {
      const length = view.getUint16(at, true);
      if (length < 4 || at + length > end) return;
      into.push(
        plainElement(bytes, view, at + 4, at + length) ??
          parseElement(new NetlinkReader(bytes, view, at + 4, at + length)),
      );
      at += (length + 3) & ~3;
    }
  }
}

/** Undefined if the element has attributes other than key and flags. */
function plainElement(bytes: Bytes, view: DataView<ArrayBuffer>, start: number, end: number): SetElement | undefined {
  let key: Uint8Array | undefined;
  let isEnd = false;
  for (let at = start; at + 4 <= end; ) {
    const length = view.getUint16(at, true);
    const type = view.getUint16(at + 2, true) & 0x3fff;
    if (length < 8 || at + length > end) return undefined; // key and flags have at least four bytes
    if (type === 1) {
      const inner = view.getUint16(at + 4, true); // NFTA_DATA_VALUE
      if (inner + 4 > length) return undefined;
      key = bytes.slice(at + 8, at + 4 + inner);
    } else if (type === 3) isEnd = (view.getUint32(at + 4) & 1) !== 0;
    else return undefined;
    at += (length + 3) & ~3;
  }
  if (key === undefined) return undefined;
  return isEnd ? { key, isEnd } : { key };
}

function parseElement(a: NetlinkReader): SetElement {
  let key: Uint8Array = EMPTY;
  const rest: { -readonly [K in keyof SetElement]?: SetElement[K] } = {};
  while (a.next()) {
    if (a.type === 1) key = dataValue(a.nested()) ?? EMPTY;
    else if (a.type === 2) {
      const value = dataValue(a.nested()) ?? parseVerdict(a.nested());
      if (value !== undefined) rest.value = value;
    } else if (a.type === 3) {
      if ((a.be32() & 1) !== 0) rest.isEnd = true;
    } else if (a.type === 10) {
      const last = dataValue(a.nested());
      if (last !== undefined) rest.lastKey = last;
    }
  }
  return { key, ...rest };
}

const EMPTY = new Uint8Array(0);

function dataValue(a: NetlinkReader): Uint8Array | undefined {
  while (a.next()) if (a.type === 1) return a.bytes();
  return undefined;
}

function parseVerdict(a: NetlinkReader): Verdict | undefined {
  while (a.next()) {
    if (a.type !== 2) continue; // NFTA_DATA_VERDICT
    const v = a.nested();
    let code = 0;
    let chain: string | undefined;
    while (v.next()) {
      if (v.type === 1) code = v.be32();
      else if (v.type === 2) chain = v.string();
    }
    return verdictFromCode(code, chain);
  }
  return undefined;
}

export function parseFlowtable(message: NetlinkMessage): DumpedFlowtable | undefined {
  const a = message.attributes(HEADER);
  let name = "";
  const devices: string[] = [];
  while (a.next())
    if (a.type === 2) name = a.string();
    else if (a.type === 3) {
      const hook = a.nested();
      while (hook.next())
        if (hook.type === 3) {
          const list = hook.nested(); // NFTA_FLOWTABLE_HOOK_DEVS
          while (list.next()) if (list.type === 1) devices.push(list.string());
        }
    }
  return { name, devices };
}
