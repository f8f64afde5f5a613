// nf_tables over netlink: transactions and dumps. Nothing here runs the `nft` tool, which reads the whole table again
// for every transaction.
//
// The kernel counts generations: each transaction anyone commits makes a new one. `generation()` tells in one message
// whether the ruleset is still what we last saw, and a commit can insist on it.
import { describeError } from "../lib/log.ts";
import { nextTurn } from "../lib/retry.ts";
import { NetlinkError } from "./netlink-error.ts";
import type { NetlinkMessage } from "./netlink-reader.ts";
import { type BatchFault, NETLINK_NETFILTER, NetlinkSocket } from "./netlink-socket.ts";
import type { NetlinkWriter } from "./netlink-writer.ts";
import { describeChange, type NftChange, type NftFamily, type TableRef } from "./nft-change.ts";
import {
  type DumpedChain,
  type DumpedElement,
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

/** Resizing a table of a million members may take the kernel a second or more. */
const LIST_ATTEMPTS = 500;
const RESIZING_MS = 10;
const STILL = new Int32Array(new SharedArrayBuffer(4));

const latin1 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
const identityOf = ({ key, lastKey, isEnd }: DumpedElement): string =>
  `${latin1(key)}${lastKey === undefined ? "" : latin1(lastKey)}${isEnd === true ? " end" : ""}`;

/** A transaction the kernel refused: nothing of it was done. */
export class NftError extends NetlinkError {
  constructor(
    /** The change that was refused; nothing when it was the transaction as a whole. */
    readonly change: NftChange | undefined,
    request: string,
    errno: string,
    extack: NetlinkError["extack"],
    /** All changes that were refused, this one first: the kernel looks at the rest even after a fault. */
    readonly refused: readonly NftChange[] = change === undefined ? [] : [change],
  ) {
    super(request, errno, extack);
  }
}

export interface PendingCommit {
  /** Rejects as `commit` throws. */
  send(): Promise<void>;
}

/** What the rooms above need of a ruleset; the kernel's, or one in memory for tests. */
export interface NftRuleset {
  /** All of the changes or none. */
  commit(changes: readonly NftChange[], options?: { readonly generation?: number }): void;
  /**
   * A transaction for thousands of changes, which does not block the event loop: it is encoded in steps, other tasks run in
   * between, and another thread sends it. One at a time: encode the next one after `send` of this one was called, and
   * call its `send` after this one has ended.
   */
  commitAside(changes: readonly NftChange[], options?: { readonly generation?: number }): Promise<PendingCommit>;
  /** Throws as `commit` would, and does nothing: the ruleset stays what it is, and nobody hears of it. */
  tryOut(changes: readonly NftChange[]): void;
  /** Grows with every transaction on this host's ruleset, ours or not. */
  generation(): number;
  tables(family?: NftFamily): DumpedTable[];
  chains(table: TableRef): DumpedChain[];
  rules(table: TableRef, options?: { readonly chain?: string; readonly withTargets?: boolean }): DumpedRule[];
  sets(table: TableRef): DumpedSet[];
  elements(table: TableRef, set: string): DumpedElement[];
  flowtables(table: TableRef): DumpedFlowtable[];
}

export class Nft implements NftRuleset, Disposable {
  readonly #socket: NetlinkSocket;
  /** For what another thread sends: what ours asks meanwhile does not meet its answers. */
  readonly #aside: NetlinkSocket;

  /** Opens in the calling thread's network namespace, where it stays for good. */
  constructor() {
    const open = () => NetlinkSocket.open(NETLINK_NETFILTER, { timeoutMs: 60_000, receiveBufferBytes: 32 << 20 });
    this.#socket = open();
    this.#aside = open();
  }

  commit(changes: readonly NftChange[], options: { readonly generation?: number } = {}): void {
    const batch = new Batch(this.#socket.batch(), changes, options);
    batch.encode();
    const { writer, encoder, what } = batch;
    throwFault(changes, encoder, what, this.#socket.sendBatch(writer, what));
  }

  async commitAside(
    changes: readonly NftChange[],
    options: { readonly generation?: number } = {},
  ): Promise<PendingCommit> {
    const batch = new Batch(this.#aside.batchAside(), changes, options);
    const steps = batch.encodeInSteps();
    for (let end = performance.now() + SLICE_MS; steps.next().done !== true; ) {
      if (performance.now() < end) continue;
      await nextTurn();
      end = performance.now() + SLICE_MS;
    }
    const { writer, encoder, what } = batch;
    const send = async () => throwFault(changes, encoder, what, await this.#aside.sendBatchAside(writer, what));
    return { send };
  }

  tryOut(changes: readonly NftChange[]): void {
    const batch = new Batch(this.#socket.batch(), changes, { isTrial: true });
    batch.encode();
    const { writer, encoder, what } = batch;
    throwFault(changes, encoder, what, this.#socket.sendBatch(writer, what));
  }

  generation(): number {
    const generation = this.#socket.query(
      { what: "read the nftables generation", type: type(NFT_MSG.getGeneration), body: (w) => putFamily(w, "any") },
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
      { what: "list nftables tables", type: type(NFT_MSG.getTable), body: (w) => putFamily(w, family) },
      parseTable,
    );
  }

  chains(table: TableRef): DumpedChain[] {
    const chains = this.#dump(`list chains of ${table.family} ${table.name}`, NFT_MSG.getChain, table, parseChain);
    return chains.filter((chain) => chain.table.name === table.name); // chain dumps are filtered by family only
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
   * The kernel goes through a hash table from its beginning for every part of a list, passing over as many members as it
   * has told. While it resizes the table, after many were added, the order changes: some come twice, and as many never.
   */
  elements(table: TableRef, set: string): DumpedElement[] {
    const what = `list elements of ${table.family} ${table.name} ${set}`;
    for (let attempt = 1; attempt <= LIST_ATTEMPTS; attempt++) {
      const parts = this.#dump(
        what,
        NFT_MSG.getElement,
        table,
        (message) => {
          const elements: DumpedElement[] = [];
          parseElements(message, elements);
          return elements;
        },
        (w) => w.string(2, set), // NFTA_SET_ELEM_LIST_SET
      );
      const elements = parts.length === 1 ? (parts[0] ?? []) : parts.flat();
      if (new Set(elements.map(identityOf)).size === elements.length) return elements;
      Atomics.wait(STILL, 0, 0, RESIZING_MS);
    }
    throw new NetlinkError(what, "EINTR", {
      message: `the kernel was resizing it during all of ${LIST_ATTEMPTS} lists`,
    });
  }

  flowtables(table: TableRef): DumpedFlowtable[] {
    return this.#dump(`list flowtables of ${table.family} ${table.name}`, NFT_MSG.getFlowtable, table, parseFlowtable);
  }

  #dump<T>(
    what: string,
    message: number,
    table: TableRef,
    parse: (reply: NetlinkMessage) => T | undefined,
    filter: (w: NetlinkWriter) => void = () => {},
  ): T[] {
    return this.#socket.dump(
      {
        what,
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
    this.#aside[Symbol.dispose]();
  }
}

/** The changes of one transaction while they are encoded. */
class Batch {
  readonly encoder: BatchEncoder;
  readonly what: string;

  constructor(
    readonly writer: NetlinkWriter,
    readonly changes: readonly NftChange[],
    readonly options: EncodeOptions,
  ) {
    this.encoder = new BatchEncoder(writer);
    this.what = `commit ${changes.length} nftables changes`;
  }

  encode(): void {
    for (const _ of this.encodeInSteps());
  }

  *encodeInSteps(): Generator<undefined> {
    const { changes, encoder } = this;
    if (changes.length === 0) return;
    this.writer.expect(changes.length * BYTES_OF_A_CHANGE);
    try {
      yield* encoder.encodeInSteps(changes, this.options);
    } catch (error) {
      const change = changes[encoder.changes];
      throw new NftError(change, `encode ${nameChange(change)}`, "EINVAL", { message: describeError(error) });
    }
  }
}

const type = (message: number): number => (NFNL_SUBSYS_NFTABLES << 8) | message;

function throwFault(
  changes: readonly NftChange[],
  encoder: BatchEncoder,
  what: string,
  faults: readonly BatchFault[],
): void {
  const [fault] = faults;
  if (fault === undefined) return;
  const refused = new Set(faults.map(({ index }) => changes[encoder.changeOfMessage[index] ?? -1]));
  const [change] = refused;
  const known = [...refused].filter((each) => each !== undefined);
  throw new NftError(
    change,
    change === undefined ? what : describeChange(change),
    fault.errno,
    fault.extack,
    change === undefined ? [] : known,
  );
}

/** In words, also for a change that cannot be made ready for the kernel. */
function nameChange(change: NftChange | undefined): string {
  try {
    return change === undefined ? "a change" : describeChange(change);
  } catch {
    return change === undefined ? "" : `${change.op} ${"chain" in change ? change.chain : change.table.name}`;
  }
}

/** How long changes are encoded before other tasks of the event loop run. */
const SLICE_MS = 10;
/** About what a rule takes; too little only means that the buffer grows. */
const BYTES_OF_A_CHANGE = 400;
