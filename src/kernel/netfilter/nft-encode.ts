// Encodes nftables changes as netlink messages, between the two messages that make them one transaction.
// Attribute numbers are those of include/uapi/linux/netfilter/nf_tables.h.
import { unreachable } from "../../lib/unreachable.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/netlink-writer.ts";
import type { BaseChain, Hook, NftChange, NftFamily, RuleBody, TableRef } from "./nft-change.ts";
import { writeExpression } from "./nft-expression.ts";
import { FIELD, type InlineSet, keyLength, keyTypeId, type SetElement, type SetType, setUserData } from "./nft-set.ts";
import { writeVerdict } from "./nft-verdict.ts";

export const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;
const NFNL_BATCH_GENID = 1;

export const NFT_MSG = {
  newTable: 0,
  getTable: 1,
  deleteTable: 2,
  newChain: 3,
  getChain: 4,
  deleteChain: 5,
  newRule: 6,
  getRule: 7,
  deleteRule: 8,
  newSet: 9,
  getSet: 10,
  deleteSet: 11,
  newElement: 12,
  getElement: 13,
  deleteElement: 14,
  newGeneration: 15,
  getGeneration: 16,
  newFlowtable: 22,
  getFlowtable: 23,
  deleteFlowtable: 24,
} as const;

export const FAMILY: Readonly<Record<NftFamily, number>> = { inet: 1, ip: 2, arp: 3, ip6: 10 };
const HOOK: Readonly<Record<Hook, number>> = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 };
const ARP_HOOK: Readonly<Record<Hook, number>> = { prerouting: 0, input: 0, output: 1, forward: 2, postrouting: 4 };

const NFT_SET_ANONYMOUS = 0x1;
const NFT_SET_CONSTANT = 0x2;
const NFT_SET_INTERVAL = 0x4;
const NFT_SET_MAP = 0x8;
const NFT_SET_CONCAT = 0x80;
const NFT_DATA_VERDICT = 0xffffff00;
const NFT_SET_ELEM_INTERVAL_END = 1;

const ELEMENT_MESSAGE = { addElements: NFT_MSG.newElement, deleteElements: NFT_MSG.deleteElement } as const;
/** The elements of one message are in one attribute, whose length has 16 bits. */
const MAX_ELEMENT_BYTES = 60_000;

/** The limit of `nft`, including the terminating NUL. */
const MAX_COMMENT_BYTES = 128;

export interface EncodeOptions {
  /** The transaction fails with ERESTART if the ruleset has another generation. */
  readonly generation?: number;
  /** Omits the message that ends the transaction: the kernel checks all changes and then undoes them. */
  readonly isDryRun?: boolean;
}

export class BatchEncoder {
  readonly #w: NetlinkWriter;
  /** For each message, the index of its change; -1 for the begin and end messages. */
  readonly changeOfMessage: number[] = [];
  /** Index of the change that is being encoded. */
  changeIndex = 0;
  #lastSetId = 0;
  /** The encoded bytes of shared rules. */
  readonly #shared = new Map<RuleBody, Uint8Array>();

  constructor(writer: NetlinkWriter) {
    this.#w = writer;
  }

  /** Encodes at most 60 kB between two `yield`s, so that the caller can let other tasks run. */
  *encodeInSteps(
    changes: readonly NftChange[],
    { generation, isDryRun = false }: EncodeOptions = {},
  ): Generator<undefined> {
    this.#batchMessage(NFNL_MSG_BATCH_BEGIN, generation);
    this.changeOfMessage.push(-1);
    for (let i = 0; i < changes.length; i++) {
      const change = changes[i];
      if (change === undefined) continue;
      const before = this.#w.messages;
      this.changeIndex = i;
      if ("elements" in change)
        yield* this.#elements(ELEMENT_MESSAGE[change.op], change.table, change.set, change.elements, 0);
      else if ("rule" in change) {
        const { rule } = change; // read once, because a getter may render it
        this.#rule(change, rule, yield* this.#encodeInlineSets(change.table, rule));
      } else this.#change(change);
      yield;
      for (let n = before; n < this.#w.messages; n++) this.changeOfMessage.push(i);
    }
    if (isDryRun) return;
    this.#batchMessage(NFNL_MSG_BATCH_END);
    this.changeOfMessage.push(-1);
  }

  #batchMessage(type: number, generation?: number): void {
    const w = this.#w;
    w.message(type, 0, () => {
      w.putU8(0);
      w.putU8(0);
      w.putBe16(NFNL_SUBSYS_NFTABLES);
      if (generation !== undefined) w.be32(NFNL_BATCH_GENID, generation);
    });
  }

  #message(type: number, flags: number, table: TableRef, body: () => void): void {
    const w = this.#w;
    w.message((NFNL_SUBSYS_NFTABLES << 8) | type, flags, () => {
      putFamily(w, table.family);
      w.string(1, table.name); // NFTA_*_TABLE, and NFTA_TABLE_NAME
      body();
    });
  }

  #change(change: Exclude<NftChange, { readonly elements: unknown } | { readonly rule: unknown }>): void {
    const w = this.#w;
    switch (change.op) {
      case "addTable":
        return this.#message(NFT_MSG.newTable, NLM_F_CREATE, change.table, () => w.be32(2, 0)); // NFTA_TABLE_FLAGS
      case "createTable":
        return this.#message(NFT_MSG.newTable, NLM_F_CREATE | NLM_F_EXCL, change.table, () => w.be32(2, 0));
      case "deleteTable":
        return this.#message(NFT_MSG.deleteTable, 0, change.table, () => {});
      case "destroyTable":
        // NFT_MSG_DESTROYTABLE exists only since Linux 6.3. Adding the table first has the same effect.
        this.#message(NFT_MSG.newTable, NLM_F_CREATE, change.table, () => w.be32(2, 0));
        return this.#message(NFT_MSG.deleteTable, 0, change.table, () => {});
      case "addChain":
        return this.#message(NFT_MSG.newChain, NLM_F_CREATE, change.table, () => {
          w.string(3, change.chain); // NFTA_CHAIN_NAME
          if (change.base !== undefined) writeHook(w, change.base, change.table.family);
        });
      case "deleteChain":
        return this.#message(NFT_MSG.deleteChain, 0, change.table, () => w.string(3, change.chain));
      case "flushChain":
        // Without a handle, this deletes all rules of the chain.
        return this.#message(NFT_MSG.deleteRule, 0, change.table, () => w.string(2, change.chain)); // NFTA_RULE_CHAIN
      case "deleteRule":
        return this.#message(NFT_MSG.deleteRule, 0, change.table, () => {
          w.string(2, change.chain);
          w.be64(3, change.handle); // NFTA_RULE_HANDLE
        });
      case "addSet":
        return this.#set(change.table, change.set, change.type, 0, 0);
      case "deleteSet":
        return this.#message(NFT_MSG.deleteSet, 0, change.table, () => w.string(2, change.set)); // NFTA_SET_NAME
      case "flushSet":
        return this.#message(NFT_MSG.deleteElement, 0, change.table, () => w.string(2, change.set));
      case "addFlowtable":
        return this.#message(NFT_MSG.newFlowtable, NLM_F_CREATE, change.table, () => {
          w.string(2, change.flowtable); // NFTA_FLOWTABLE_NAME
          writeFlowtableHook(w, change.devices, change.priority);
        });
      case "deleteFlowtable":
        return this.#message(NFT_MSG.deleteFlowtable, 0, change.table, () => {
          w.string(2, change.flowtable);
          if (change.devices !== undefined) writeFlowtableHook(w, change.devices);
        });
      default:
        return unreachable(change);
    }
  }

  /** Encodes the sets inside a rule, which must precede it. Returns their IDs in this batch. */
  *#encodeInlineSets(
    table: TableRef,
    rule: RuleBody,
  ): Generator<undefined, ReadonlyMap<InlineSet, number> | undefined> {
    let ids: Map<InlineSet, number> | undefined;
    for (const expression of rule.expressions)
      if (expression.kind === "lookup" && typeof expression.set !== "string") {
        const id = ++this.#lastSetId;
        (ids ??= new Map()).set(expression.set, id);
        const { type, elements } = expression.set;
        const name = type.value === undefined ? "__set%d" : "__map%d";
        this.#set(table, name, type, id, elements.length);
        yield* this.#elements(NFT_MSG.newElement, table, name, elements, id);
      }
    return ids;
  }

  #rule(
    change: Extract<NftChange, { readonly op: "appendRule" }>,
    rule: RuleBody,
    ids: ReadonlyMap<InlineSet, number> | undefined,
  ): void {
    const w = this.#w;
    const start = w.beginMessage((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG.newRule, NLM_F_CREATE | NLM_F_APPEND);
    putFamily(w, change.table.family);
    w.string(1, change.table.name); // NFTA_RULE_TABLE
    w.string(2, change.chain); // NFTA_RULE_CHAIN
    const isShared = rule.isShared === true && ids === undefined;
    const encoded = isShared ? this.#shared.get(rule) : undefined;
    if (encoded !== undefined) w.putBytes(encoded);
    else {
      const from = w.length;
      const list = w.beginNest(4); // NFTA_RULE_EXPRESSIONS
      for (const expression of rule.expressions) writeExpression(w, expression, (set) => ids?.get(set) ?? 0);
      w.endNest(list);
      if (rule.comment !== undefined) w.bytes(7, commentUserData(rule.comment)); // NFTA_RULE_USERDATA
      if (isShared) this.#shared.set(rule, w.toBytes(from));
    }
    w.endMessage(start);
  }

  #set(table: TableRef, name: string, type: SetType, id: number, size: number): void {
    const w = this.#w;
    const isConcatenation = type.key.length > 1;
    const flags =
      (id === 0 ? 0 : NFT_SET_ANONYMOUS | NFT_SET_CONSTANT) |
      (type.interval === true ? NFT_SET_INTERVAL : 0) |
      (type.interval === true && isConcatenation ? NFT_SET_CONCAT : 0) |
      (type.value === undefined ? 0 : NFT_SET_MAP);
    this.#message(NFT_MSG.newSet, NLM_F_CREATE, table, () => {
      w.string(2, name); // NFTA_SET_NAME
      w.be32(3, flags); // NFTA_SET_FLAGS
      w.be32(4, keyTypeId(type.key)); // NFTA_SET_KEY_TYPE
      w.be32(5, keyLength(type.key)); // NFTA_SET_KEY_LEN
      if (type.value === "verdict") {
        w.be32(6, NFT_DATA_VERDICT); // NFTA_SET_DATA_TYPE
        w.be32(7, 0); // NFTA_SET_DATA_LEN
      } else if (type.value !== undefined) {
        w.be32(6, keyTypeId(type.value));
        w.be32(7, keyLength(type.value));
      }
      w.be32(10, id === 0 ? ++this.#lastSetId : id); // NFTA_SET_ID: required, and unique in the batch
      if (size > 0 || (type.interval === true && isConcatenation)) {
        const description = w.beginNest(9); // NFTA_SET_DESC
        if (size > 0) w.be32(1, size); // NFTA_SET_DESC_SIZE
        if (type.interval === true && isConcatenation) {
          const fields = w.beginNest(2); // NFTA_SET_DESC_CONCAT
          for (const field of type.key) {
            const nest = w.beginNest(1); // NFTA_LIST_ELEM
            w.be32(1, FIELD[field].length); // NFTA_SET_FIELD_LEN
            w.endNest(nest);
          }
          w.endNest(fields);
        }
        w.endNest(description);
      }
      w.bytes(13, setUserData(type)); // NFTA_SET_USERDATA
    });
  }

  *#elements(
    message: number,
    table: TableRef,
    set: string,
    elements: Iterable<SetElement>,
    id: number,
  ): Generator<undefined> {
    const w = this.#w;
    const flags = message === NFT_MSG.newElement ? NLM_F_CREATE : 0;
    const iterator = elements[Symbol.iterator]();
    let next = iterator.next();
    while (next.done !== true) {
      this.#message(message, flags, table, () => {
        w.string(2, set); // NFTA_SET_ELEM_LIST_SET
        if (id !== 0) w.be32(4, id); // NFTA_SET_ELEM_LIST_SET_ID
        const start = w.length;
        const list = w.beginNest(3); // NFTA_SET_ELEM_LIST_ELEMENTS
        for (; next.done !== true && w.length - start < MAX_ELEMENT_BYTES; next = iterator.next())
          writeElement(w, next.value);
        w.endNest(list);
      });
      yield;
    }
  }
}

export function putFamily(w: NetlinkWriter, family: NftFamily | "any"): void {
  w.putU8(family === "any" ? 0 : FAMILY[family]);
  w.putU8(0); // NFNETLINK_V0
  w.putU16(0);
}

function writeFlowtableHook(w: NetlinkWriter, names: readonly string[], priority?: number): void {
  const hook = w.beginNest(3); // NFTA_FLOWTABLE_HOOK
  if (priority !== undefined) {
    w.be32(1, 0); // NFTA_FLOWTABLE_HOOK_NUM: ingress
    w.be32(2, priority); // NFTA_FLOWTABLE_HOOK_PRIORITY
  }
  const devices = w.beginNest(3); // NFTA_FLOWTABLE_HOOK_DEVS
  for (const device of names) w.string(1, device);
  w.endNest(devices);
  w.endNest(hook);
}

function writeHook(w: NetlinkWriter, base: BaseChain, family: NftFamily): void {
  const hook = w.beginNest(4); // NFTA_CHAIN_HOOK
  w.be32(1, (family === "arp" ? ARP_HOOK : HOOK)[base.hook]); // NFTA_HOOK_HOOKNUM
  w.be32(2, base.priority); // NFTA_HOOK_PRIORITY
  w.endNest(hook);
  w.be32(5, base.policy === "accept" ? 1 : 0); // NFTA_CHAIN_POLICY
  w.string(7, base.type); // NFTA_CHAIN_TYPE
}

function writeElement(w: NetlinkWriter, element: SetElement): void {
  const nest = w.beginNest(1); // NFTA_LIST_ELEM
  if (element.isEnd === true) w.be32(3, NFT_SET_ELEM_INTERVAL_END); // NFTA_SET_ELEM_FLAGS
  const key = w.beginNest(1); // NFTA_SET_ELEM_KEY
  w.bytes(1, element.key); // NFTA_DATA_VALUE
  w.endNest(key);
  if (element.lastKey !== undefined) {
    const last = w.beginNest(10); // NFTA_SET_ELEM_KEY_END
    w.bytes(1, element.lastKey);
    w.endNest(last);
  }
  if (element.value instanceof Uint8Array) {
    const value = w.beginNest(2); // NFTA_SET_ELEM_DATA
    w.bytes(1, element.value);
    w.endNest(value);
  } else if (element.value !== undefined) writeVerdict(w, 2, element.value);
  w.endNest(nest);
}

const encoder = new TextEncoder();

/** Encodes a comment as nft does: kind 0, length, NUL-terminated text. */
function commentUserData(comment: string): Uint8Array {
  const text = encoder.encode(comment);
  if (text.length >= MAX_COMMENT_BYTES)
    throw new RangeError(`rule comment of ${text.length} bytes is too long: ${comment}`);
  const bytes = new Uint8Array(text.length + 3);
  bytes[1] = text.length + 1;
  bytes.set(text, 2);
  return bytes;
}
