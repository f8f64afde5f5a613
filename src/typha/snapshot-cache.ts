// What a pipeline's clients follow: the present state in leaves of a few hundred entries each, the last changes as
// crumbs, and a memory of deletions. Every change has a sequence number, so whoever knows everything up to one can be
// told the rest: by the crumbs since, or, when those are gone, by all entries changed since. Nothing is kept on behalf
// of a slow client; it costs no memory however slow it is.
import type { SyncerSink, SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import { FRAME, frameBytes } from "./protocol.ts";
import { type CrumbHead, encodeHead, encodeRecords, type TextUpdate, textUpdate } from "./records.ts";

/** One frame in both forms, each made when first needed and then shared by all. */
class SharedFrame {
  readonly #make: (compress: boolean) => Buffer;
  #plain: Buffer | undefined;
  #packed: Buffer | undefined;

  constructor(make: (compress: boolean) => Buffer) {
    this.#make = make;
  }

  bytes(compress: boolean): Buffer {
    if (compress) return (this.#packed ??= this.#make(true));
    return (this.#plain ??= this.#make(false));
  }
}

/** A published step from one state of the datastore to a later one. */
export interface Crumb extends CrumbHead {
  readonly changes: readonly TextUpdate[];
  readonly frame: SharedFrame;
}

interface Entry extends TextUpdate {
  readonly value: string;
  readonly sequence: number;
}
export interface LeafFrame {
  readonly bytes: Buffer;
  /** It holds all changes up to here. */
  readonly sequence: number;
}
export interface Leaf {
  /** Sorted by path, never empty. */
  entries: Entry[];
  /** Of its newest change. */
  sequence: number;
  packed: KeptFrame | undefined;
  plain: KeptFrame | undefined;
}
interface KeptFrame extends LeafFrame {
  readonly madeAt: number;
  /** Changes of the leaf since. */
  dirty: number;
}

export interface SnapshotCacheOptions {
  /** Most changes in one crumb. */
  readonly maxBatch?: number;
  readonly now?: () => number;
  /** How long deletions are remembered for those who fell behind. */
  readonly memoryMs?: number;
  /** Time to gather changes before the next crumb; asked each time. */
  readonly paceMs?: () => number;
}

export interface CacheCounts {
  updates: number;
  skipped: number;
  framesMade: number;
  framesReused: number;
  rawBytes: number;
  packedBytes: number;
  /** Changes in the newest crumb. */
  lastCrumb: number;
  /** Followers that had the next crumb waiting for them, and those that waited for it. */
  ready: number;
  waited: number;
}

const LEAF_SPLIT = 1024;
const MAX_CRUMBS = 1024;
const MAX_CRUMB_CHANGES = 20_000;
const MAX_DELETIONS = 200_000;
/** A leaf's frame may be older than the leaf: what changed since is told afterwards. */
const FRAME_LIFE_MS = 1000;
const FRAME_DIRT = 0.1;

export class SnapshotCache implements SyncerSink {
  readonly counts: CacheCounts = {
    updates: 0,
    skipped: 0,
    framesMade: 0,
    framesReused: 0,
    rawBytes: 0,
    packedBytes: 0,
    lastCrumb: 0,
    ready: 0,
    waited: 0,
  };
  readonly #now: () => number;
  readonly #maxBatch: number;
  readonly #memoryMs: number;
  readonly #paceMs: () => number;
  readonly #listeners = new Set<() => void>();
  readonly #leaves: Leaf[] = [];
  readonly #byPath = new Map<string, Entry>();
  /** Newest last. */
  #crumbs: Crumb[] = [];
  #crumbChanges = 0;
  /** Path → when it went, oldest first. */
  readonly #deletions = new Map<string, { readonly sequence: number; readonly at: number }>();
  /** Deletions up to here are forgotten. */
  #horizon = 0;
  #pending: TextUpdate[] = [];
  /** The last of the pending changes for each path. */
  readonly #newest = new Map<string, TextUpdate>();
  #wantedStatus: SyncStatus = "wait-for-ready";
  #timer: Timer | undefined;
  #publishedAt = 0;
  #head: CrumbHead;

  constructor(options: SnapshotCacheOptions = {}) {
    this.#now = options.now ?? Date.now;
    this.#maxBatch = options.maxBatch ?? 100;
    this.#memoryMs = options.memoryMs ?? 600_000;
    this.#paceMs = options.paceMs ?? (() => 0);
    this.#head = { sequence: 1, status: "wait-for-ready", time: this.#now() };
  }

  get head(): CrumbHead {
    return this.#head;
  }
  get size(): number {
    return this.#byPath.size;
  }
  get isInSync(): boolean {
    return this.#head.status === "in-sync";
  }

  onStatus(status: SyncStatus): void {
    this.#wantedStatus = status;
    this.#schedule();
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const update of updates) {
      this.counts.updates++;
      const next = textUpdate(update);
      const current = this.#newest.get(next.path) ?? this.#byPath.get(next.path);
      // What says nothing new is not passed on. A deletion always is: consumers count them.
      if (current !== undefined && current.value === next.value && next.change !== "new") {
        this.counts.skipped++;
        continue;
      }
      this.#pending.push(next);
      this.#newest.set(next.path, next);
    }
    // Statuses belong behind all updates before them: only the last crumb of what is pending carries one.
    this.#schedule();
  }

  /** Told after each new crumb. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Makes crumbs of what is pending, now. */
  publish(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const pending = this.#pending;
    this.#pending = [];
    this.#newest.clear();
    if (pending.length === 0 && this.#wantedStatus === this.#head.status) return;
    this.#publishedAt = this.#now();
    for (let i = 0; i === 0 || i < pending.length; i += this.#maxBatch) {
      const isLast = i + this.#maxBatch >= pending.length;
      const status = isLast ? this.#wantedStatus : this.#head.status;
      this.#addCrumb(pending.slice(i, i + this.#maxBatch), status);
    }
    this.#forgetDeletions();
    for (const listener of this.#listeners) listener();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#listeners.clear();
  }

  /** The crumbs after a sequence number; undefined when they are no longer all there. */
  crumbsAfter(sequence: number): readonly Crumb[] | undefined {
    if (sequence === this.#head.sequence) return [];
    const first = this.#crumbs[0];
    if (first === undefined || sequence < first.sequence - 1) return undefined;
    return this.#crumbs.slice(sequence - first.sequence + 1);
  }

  /** Whether all deletions after a sequence number are remembered. */
  remembers(sequence: number): boolean {
    return sequence >= this.#horizon;
  }

  deletionsAfter(sequence: number): TextUpdate[] {
    const found: TextUpdate[] = [];
    for (const [path, gone] of this.#deletions)
      if (gone.sequence > sequence) found.push({ path, value: undefined, revision: "", change: "deleted" });
    return found;
  }

  /** The first leaf that holds a path beyond the given one. */
  leafAfter(path: string): Leaf | undefined {
    const i = this.#leafIndex(path);
    const leaf = this.#leaves[i];
    if (leaf === undefined) return undefined;
    return (leaf.entries.at(-1)?.path ?? "") > path ? leaf : this.#leaves[i + 1];
  }

  /** A whole leaf as creations, kept for the next who asks. It may be somewhat older than the leaf is now. */
  leafFrame(leaf: Leaf, compress: boolean): LeafFrame {
    const form = compress ? "packed" : "plain";
    const kept = leaf[form];
    const isFresh =
      kept !== undefined &&
      (kept.dirty <= leaf.entries.length * FRAME_DIRT || this.#now() - kept.madeAt < FRAME_LIFE_MS) &&
      this.remembers(kept.sequence);
    if (isFresh) {
      this.counts.framesReused++;
      return kept;
    }
    this.counts.framesMade++;
    const bytes = this.updatesFrame(leaf.entries, compress);
    const made = { bytes, sequence: this.#head.sequence, madeAt: this.#now(), dirty: 0 };
    leaf[form] = made;
    return made;
  }

  /** Updates outside any crumb: part of a snapshot or of catching up. */
  updatesFrame(updates: readonly TextUpdate[], compress: boolean): Buffer {
    const records = encodeRecords(updates);
    const frame = frameBytes(FRAME.updates, records, compress);
    this.counts.rawBytes += records.length;
    this.counts.packedBytes += frame.length;
    return frame;
  }

  /** What was told since `begin` adds up to this state. */
  endFrame(head: CrumbHead): Buffer {
    return frameBytes(FRAME.end, encodeHead(head));
  }

  #schedule(): void {
    if (this.#timer !== undefined) return;
    const waitMs = Math.max(0, this.#publishedAt + this.#paceMs() - this.#now());
    this.#timer = setTimeout(() => this.publish(), waitMs);
  }

  #addCrumb(changes: readonly TextUpdate[], status: SyncStatus): void {
    const head: CrumbHead = { sequence: this.#head.sequence + 1, status, time: this.#now() };
    for (const change of changes) this.#apply(change, head.sequence);
    const frame = new SharedFrame((compress) =>
      frameBytes(FRAME.crumb, Buffer.concat([encodeHead(head), encodeRecords(changes)]), compress),
    );
    this.#head = head;
    this.counts.lastCrumb = changes.length;
    this.#crumbs.push({ ...head, changes, frame });
    this.#crumbChanges += changes.length;
    let drop = 0;
    while (this.#crumbs.length - drop > MAX_CRUMBS || this.#crumbChanges > MAX_CRUMB_CHANGES)
      this.#crumbChanges -= this.#crumbs[drop++]?.changes.length ?? 0;
    if (drop > 0) this.#crumbs = this.#crumbs.slice(drop);
  }

  #apply(change: TextUpdate, sequence: number): void {
    const { path, value, revision } = change;
    if (value === undefined) {
      if (this.#byPath.delete(path)) this.#removeEntry(path, sequence);
      this.#deletions.delete(path);
      this.#deletions.set(path, { sequence, at: this.#now() });
      return;
    }
    const entry: Entry = { path, value, revision, change: "new", sequence };
    this.#byPath.set(path, entry);
    this.#deletions.delete(path);
    this.#putEntry(entry);
  }

  #putEntry(entry: Entry): void {
    const i = this.#leafIndex(entry.path);
    const leaf = this.#leaves[i];
    if (leaf === undefined) {
      this.#leaves.push(newLeaf([entry], entry.sequence));
      return;
    }
    const at = lowerBound(leaf.entries, entry.path);
    const isKnown = leaf.entries[at]?.path === entry.path;
    leaf.entries.splice(at, isKnown ? 1 : 0, entry);
    touch(leaf, entry.sequence);
    if (leaf.entries.length <= LEAF_SPLIT) return;
    // New paths mostly come in order: leave the left half full enough to be left alone.
    const right = leaf.entries.splice(at >= LEAF_SPLIT ? LEAF_SPLIT : LEAF_SPLIT / 2);
    leaf.packed = leaf.plain = undefined;
    this.#leaves.splice(i + 1, 0, newLeaf(right, leaf.sequence));
  }

  #removeEntry(path: string, sequence: number): void {
    const i = this.#leafIndex(path);
    const leaf = this.#leaves[i];
    if (leaf === undefined) return;
    leaf.entries.splice(lowerBound(leaf.entries, path), 1);
    touch(leaf, sequence);
    if (leaf.entries.length === 0) this.#leaves.splice(i, 1);
  }

  /** The last leaf that begins at or before a path. */
  #leafIndex(path: string): number {
    let [low, high] = [0, this.#leaves.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#leaves[middle]?.entries[0]?.path ?? "") <= path) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #forgetDeletions(): void {
    const oldest = this.#now() - this.#memoryMs;
    for (const [path, { sequence, at }] of this.#deletions) {
      if (at >= oldest && this.#deletions.size <= MAX_DELETIONS) return;
      this.#deletions.delete(path);
      this.#horizon = sequence;
    }
  }
}

const newLeaf = (entries: Entry[], sequence: number): Leaf => ({
  entries,
  sequence,
  packed: undefined,
  plain: undefined,
});

function touch(leaf: Leaf, sequence: number): void {
  leaf.sequence = sequence;
  if (leaf.packed !== undefined) leaf.packed.dirty++;
  if (leaf.plain !== undefined) leaf.plain.dirty++;
}

function lowerBound(entries: readonly Entry[], path: string): number {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((entries[middle]?.path ?? "") < path) low = middle + 1;
    else high = middle;
  }
  return low;
}
