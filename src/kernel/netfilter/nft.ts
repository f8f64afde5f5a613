// Commits nftables transactions and lists the ruleset over netlink. The `nft` tool is not used, because it reads the whole
// table again for every transaction.
//
// The ruleset has a generation number, which every committed transaction of any program changes. Reading it takes one
// message and shows whether the ruleset has changed; a commit can require a generation.
import { describeError } from "../../lib/log/log.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { NetlinkMessage } from "../netlink/netlink-reader.ts";
import { type RejectedMessage, NETLINK_NETFILTER, NetlinkSocket } from "../netlink/netlink-socket.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { describeNftChange, type NftChange, type NftFamily, type TableRef } from "./nft-change.ts";
import {
  type DumpedChain,
  type DumpedFlowtable,
  type DumpedRule,
  type DumpedSet,
  type DumpedTable,
  parseChain,
  parseElements,
  parseFlowtable,
  parseRule,
  parseSet,
  parseTable,
} from "./nft-dump.ts";
import { BatchEncoder, type EncodeOptions, NFNL_SUBSYS_NFTABLES, NFT_MSG, putFamily } from "./nft-encode.ts";
import type { SetElement } from "./nft-set.ts";

/** Resizing a hash table of a million elements may take the kernel more than a second. */
const LIST_ATTEMPTS = 500;
const LIST_RETRY_MS = 10;
/** How long changes are encoded before other tasks of the event loop run. */
const SLICE_MS = 10;
/** An estimate for a rule, to allocate the buffer at once. The buffer grows if it is too small. */
const BYTES_PER_CHANGE = 400;

/** A transaction that the kernel rejected. None of its changes was made. */
export class NftError extends NetlinkError {
  constructor(
    /** The rejected change; undefined if the kernel rejected the transaction as a whole. */
    readonly change: NftChange | undefined,
    request: string,
    errno: string,
    extack: NetlinkError["extack"],
    /** All rejected changes, `change` first. The kernel checks the rest of a transaction even after an error. */
    readonly rejected: readonly NftChange[] = change === undefined ? [] : [change],
  ) {
    super(request, errno, extack);
  }
}

export interface PendingCommit {
  /** Rejects with the error that `commit` would throw. */
  send(): Promise<void>;
}

/** The nftables ruleset of the kernel, or a fake for tests. */
export interface NftRuleset {
  /**
   * Makes all changes, or none.
   * @throws NftError
   */
  commit(changes: readonly NftChange[], options?: { readonly generation?: number }): void;
  /**
   * A transaction of thousands of changes that does not block the event loop: it is encoded in slices, and another thread
   * sends it. At most one transaction may be in flight: start the next one after `send` was called, and call its `send`
   * after this `send` has settled.
   */
  commitOffThread(changes: readonly NftChange[], options?: { readonly generation?: number }): Promise<PendingCommit>;
  /** Throws like `commit`, but changes nothing and causes no events. */
  dryRun(changes: readonly NftChange[]): void;
  /** Changes with every transaction of any program in this network namespace. */
  generation(): number;
  tables(family?: NftFamily): DumpedTable[];
  chains(table: TableRef): DumpedChain[];
  rules(table: TableRef, options?: { readonly chain?: string; readonly withTargets?: boolean }): DumpedRule[];
  sets(table: TableRef): DumpedSet[];
  elements(table: TableRef, set: string): SetElement[];
  flowtables(table: TableRef): DumpedFlowtable[];
}

export class Nft implements NftRuleset, Disposable {
  readonly #socket: NetlinkSocket;
  /** A second socket, so that requests of this thread do not receive the replies to off-thread transactions. */
  readonly #offThreadSocket: NetlinkSocket;

  /** For the calling thread's network namespace. */
  constructor() {
    const open = () => NetlinkSocket.open(NETLINK_NETFILTER, { timeoutMs: 60_000, receiveBufferBytes: 32 << 20 });
    this.#socket = open();
    this.#offThreadSocket = open();
  }

  commit(changes: readonly NftChange[], options: { readonly generation?: number } = {}): void {
    this.#send(changes, options);
  }

  dryRun(changes: readonly NftChange[]): void {
    this.#send(changes, { isDryRun: true });
  }

  #send(changes: readonly NftChange[], options: EncodeOptions): void {
    const transaction = new Transaction(this.#socket.startBatch(), changes, options);
    for (const _ of transaction.encodeInSteps());
    const { writer, operation } = transaction;
    transaction.throwIfRejected(this.#socket.sendBatch(writer, operation));
  }

  async commitOffThread(
    changes: readonly NftChange[],
    options: { readonly generation?: number } = {},
  ): Promise<PendingCommit> {
    const socket = this.#offThreadSocket;
    const transaction = new Transaction(socket.startOffThreadBatch(), changes, options);
    const steps = transaction.encodeInSteps();
    for (let sliceEndMs = performance.now() + SLICE_MS; steps.next().done !== true; ) {
      if (performance.now() < sliceEndMs) continue;
      await yieldToEventLoop();
      sliceEndMs = performance.now() + SLICE_MS;
    }
    const { writer, operation } = transaction;
    return {
      send: async () => transaction.throwIfRejected(await socket.sendBatchOffThread(writer, operation)),
    };
  }

  generation(): number {
    const generation = this.#socket.query(
      {
        operation: "read the nftables generation",
        type: type(NFT_MSG.getGeneration),
        body: (w) => putFamily(w, "any"),
      },
      (reply) => {
        const a = reply.attributes(4);
        while (a.next()) if (a.type === 1) return a.be32();
        return undefined;
      },
    );
    return generation ?? 0;
  }

  tables(family: NftFamily | "any" = "any"): DumpedTable[] {
    return this.#socket.dump(
      { operation: "list nftables tables", type: type(NFT_MSG.getTable), body: (w) => putFamily(w, family) },
      parseTable,
    );
  }

  chains(table: TableRef): DumpedChain[] {
    const chains = this.#dump(`list chains of ${table.family} ${table.name}`, NFT_MSG.getChain, table, parseChain);
    return chains.filter((chain) => chain.table.name === table.name); // the kernel filters chains only by family
  }

  rules(table: TableRef, options: { readonly chain?: string; readonly withTargets?: boolean } = {}): DumpedRule[] {
    const { chain, withTargets = false } = options;
    return this.#dump(
      `list rules of ${table.family} ${table.name}${chain === undefined ? "" : ` ${chain}`}`,
      NFT_MSG.getRule,
      table,
      (message) => parseRule(message, withTargets),
      (w) => {
        if (chain !== undefined) w.string(2, chain); // NFTA_RULE_CHAIN
      },
    );
  }

  sets(table: TableRef): DumpedSet[] {
    return this.#dump(`list sets of ${table.family} ${table.name}`, NFT_MSG.getSet, table, parseSet);
  }

  /**
   * Repeats the list until it has no duplicates. For each part of a list, the kernel iterates over the hash table from its
   * start and skips as many elements as it has sent before. While it resizes the table, after many elements were added,
   * their order changes: some are sent twice, and as many are missing.
   */
  elements(table: TableRef, set: string): SetElement[] {
    const operation = `list elements of ${table.family} ${table.name} ${set}`;
    for (let attempt = 1; attempt <= LIST_ATTEMPTS; attempt++) {
      const parts = this.#dump(
        operation,
        NFT_MSG.getElement,
        table,
        (message) => {
          const elements: SetElement[] = [];
          parseElements(message, elements);
          return elements;
        },
        (w) => w.string(2, set), // NFTA_SET_ELEM_LIST_SET
      );
      const elements = parts.length === 1 ? (parts[0] ?? []) : parts.flat();
      if (new Set(elements.map(elementKey)).size === elements.length) return elements;
      Bun.sleepSync(LIST_RETRY_MS);
    }
    throw new NetlinkError(operation, "EINTR", {
      message: `the kernel resized the set during each of ${LIST_ATTEMPTS} attempts`,
    });
  }

  flowtables(table: TableRef): DumpedFlowtable[] {
    return this.#dump(`list flowtables of ${table.family} ${table.name}`, NFT_MSG.getFlowtable, table, parseFlowtable);
  }

  #dump<T>(
    operation: string,
    message: number,
    table: TableRef,
    parse: (reply: NetlinkMessage) => T | undefined,
    filter: (w: NetlinkWriter) => void = () => {},
  ): T[] {
    return this.#socket.dump(
      {
        operation,
        type: type(message),
        body: (w) => {
          putFamily(w, table.family);
          w.string(1, table.name);
          filter(w);
        },
      },
      parse,
    );
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
    this.#offThreadSocket[Symbol.dispose]();
  }
}

/** One transaction: encodes its changes, and finds those that the kernel rejected. */
class Transaction {
  readonly writer: NetlinkWriter;
  readonly operation: string;
  readonly #changes: readonly NftChange[];
  readonly #options: EncodeOptions;
  readonly #encoder: BatchEncoder;

  constructor(writer: NetlinkWriter, changes: readonly NftChange[], options: EncodeOptions) {
    this.writer = writer;
    this.operation = `commit ${changes.length} nftables changes`;
    this.#changes = changes;
    this.#options = options;
    this.#encoder = new BatchEncoder(writer);
  }

  *encodeInSteps(): Generator<undefined> {
    if (this.#changes.length === 0) return;
    this.writer.reserveCapacity(this.#changes.length * BYTES_PER_CHANGE);
    try {
      yield* this.#encoder.encodeInSteps(this.#changes, this.#options);
    } catch (error) {
      const change = this.#changes[this.#encoder.changeIndex];
      throw new NftError(change, `encode ${nameChange(change)}`, "EINVAL", { message: describeError(error) });
    }
  }

  /** @throws NftError */
  throwIfRejected(messages: readonly RejectedMessage[]): void {
    const [first] = messages;
    if (first === undefined) return;
    const rejected = new Set(messages.map(({ index }) => this.#changes[this.#encoder.changeOfMessage[index] ?? -1]));
    const [change] = rejected;
    const { errno, extack } = first;
    if (change === undefined) throw new NftError(undefined, this.operation, errno, extack);
    const known = [...rejected].filter((each) => each !== undefined);
    throw new NftError(change, describeNftChange(change), errno, extack, known);
  }
}

const type = (message: number): number => (NFNL_SUBSYS_NFTABLES << 8) | message;

/** Describes a change even if its rule cannot be rendered. */
function nameChange(change: NftChange | undefined): string {
  if (change === undefined) return "a change";
  try {
    return describeNftChange(change);
  } catch {
    return `${change.op} ${"chain" in change ? change.chain : change.table.name}`;
  }
}

const elementKey = ({ key, lastKey, isEnd }: SetElement): string =>
  `${latin1(key)}${lastKey === undefined ? "" : latin1(lastKey)}${isEnd === true ? " end" : ""}`;
const latin1 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
