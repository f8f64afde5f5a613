// Stores the state of one syncer for its clients: the present entries in leaves of a few hundred each, the latest changes
// as crumbs, and recent deletions. Every change has a sequence number. A client that has everything up to a number receives
// the crumbs after it or, if those are no longer kept, all entries that changed since. Nothing is stored per client, so
// slow clients use no memory.
import type { SyncerSink, SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import { FRAME, frameBytes } from "./protocol.ts";
import { type CrumbHead, encodeHead, encodeRecords, type TextUpdate, textUpdate } from "./records.ts";

/** A frame, plain and compressed. Each form is encoded when first needed, and shared by all clients. */
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

/** A published batch of changes, which leads from one state of the datastore to a later one. */
export interface Crumb extends CrumbHead {
  readonly changes: readonly TextUpdate[];
  readonly sizeBytes: number;
  readonly frame: SharedFrame;
}

interface Entry extends TextUpdate {
  readonly value: string;
  readonly sequence: number;
}
export interface LeafFrame {
  readonly bytes: Buffer;
  /** The frame contains all changes up to this sequence number. */
  readonly sequence: number;
}
export interface Leaf {
  /** Sorted by path, never empty. */
  entries: Entry[];
  sizeBytes: number;
  /** Sequence number of its newest change. */
  sequence: number;
  packed: CachedFrame | undefined;
  plain: CachedFrame | undefined;
}
interface CachedFrame extends LeafFrame {
  readonly encodedAtMs: number;
  /** Number of changes of the leaf since then. */
  dirty: number;
}

export interface SnapshotCacheOptions {
  /** Maximum number of changes per crumb. */
  readonly maxBatch?: number;
  readonly now?: () => number;
  /** Time for which deletions are kept, for clients that are behind. */
  readonly memoryMs?: number;
  /** Returns the time for which changes are batched before the next crumb. */
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
  /** Number of times that a client found the next crumb ready, and that it had to wait for it. */
  ready: number;
  waited: number;
}

const LEAF_SPLIT = 1024;
/**
 * Leaves and crumbs of more than one entry are at most this large, because a client rejects frames above 64 MB
 * (MAX_SERVER_FRAME): fifty network sets of 1.4 MB in one frame would stop all clients.
 */
const MAX_FRAME_BYTES = 4 << 20;
/** Kept crumbs. A client that needs older changes gets the entries that changed since. */
const MAX_CRUMB_BYTES = 64 << 20;
const MAX_CRUMBS = 1024;
const MAX_CRUMB_CHANGES = 20_000;
const MAX_DELETIONS = 200_000;
/** A leaf's cached frame may be out of date, because later changes are sent after it. It is used for at least this time. */
const FRAME_CACHE_MS = 1000;
/** After that, it is used while no larger share of the leaf has changed. */
const MAX_CHANGED_SHARE = 0.1;

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
  /** The newest is the last. */
  #crumbs: Crumb[] = [];
  #crumbChanges = 0;
  #crumbBytes = 0;
  /** By path; the oldest first. */
  readonly #deletions = new Map<string, { readonly sequence: number; readonly at: number }>();
  /** Deletions up to this sequence number are no longer kept. */
  #forgottenSequence = 0;
  #pending: TextUpdate[] = [];
  /** The last of the pending changes for each path. */
  readonly #newest = new Map<string, TextUpdate>();
  #latestStatus: SyncStatus = "wait-for-ready";
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
    this.#latestStatus = status;
    this.#schedule();
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const update of updates) {
      this.counts.updates++;
      const next = textUpdate(update);
      const current = this.#newest.get(next.path) ?? this.#byPath.get(next.path);
      // An update without a change is skipped. Deletions are always passed on, because consumers count them.
      if (current !== undefined && current.value === next.value && next.change !== "new") {
        this.counts.skipped++;
        continue;
      }
      this.#pending.push(next);
      this.#newest.set(next.path, next);
    }
    // A status follows all updates before it: only the last crumb of the pending changes has the new status.
    this.#schedule();
  }

  /** Calls the listener after each new crumb. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Publishes the pending changes as crumbs. */
  publish(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const pending = this.#pending;
    this.#pending = [];
    this.#newest.clear();
    if (pending.length === 0 && this.#latestStatus === this.#head.status) return;
    this.#publishedAt = this.#now();
    let start = 0;
    do {
      const end = this.#endOfCrumb(pending, start);
      const status = end === pending.length ? this.#latestStatus : this.#head.status;
      this.#addCrumb(pending.slice(start, end), status);
      start = end;
    } while (start < pending.length);
    this.#deleteOldDeletions();
    for (const listener of this.#listeners) listener();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#listeners.clear();
  }

  /** Returns the crumbs after a sequence number; undefined if some of them are no longer kept. */
  crumbsAfter(sequence: number): readonly Crumb[] | undefined {
    if (sequence === this.#head.sequence) return [];
    const first = this.#crumbs[0];
    if (first === undefined || sequence < first.sequence - 1) return undefined;
    return this.#crumbs.slice(sequence - first.sequence + 1);
  }

  /** Returns whether all deletions after a sequence number are still kept. */
  hasDeletionsAfter(sequence: number): boolean {
    return sequence >= this.#forgottenSequence;
  }

  deletionsAfter(sequence: number): TextUpdate[] {
    const found: TextUpdate[] = [];
    for (const [path, gone] of this.#deletions)
      if (gone.sequence > sequence) found.push({ path, value: undefined, revision: "", change: "deleted" });
    return found;
  }

  /** Returns the first leaf that contains a path after the given one. */
  leafAfter(path: string): Leaf | undefined {
    const i = this.#leafIndex(path);
    const leaf = this.#leaves[i];
    if (leaf === undefined) return undefined;
    return (leaf.entries.at(-1)?.path ?? "") > path ? leaf : this.#leaves[i + 1];
  }

  /** Returns all entries of a leaf as one cached frame, which may be slightly out of date. */
  leafFrame(leaf: Leaf, compress: boolean): LeafFrame {
    const form = compress ? "packed" : "plain";
    const cached = leaf[form];
    const isUsable =
      cached !== undefined &&
      (cached.dirty <= leaf.entries.length * MAX_CHANGED_SHARE || this.#now() - cached.encodedAtMs < FRAME_CACHE_MS) &&
      this.hasDeletionsAfter(cached.sequence);
    if (isUsable) {
      this.counts.framesReused++;
      return cached;
    }
    this.counts.framesMade++;
    const bytes = this.updatesFrame(leaf.entries, compress);
    const frame = { bytes, sequence: this.#head.sequence, encodedAtMs: this.#now(), dirty: 0 };
    leaf[form] = frame;
    return frame;
  }

  /** Encodes updates outside a crumb: a part of a snapshot or of a catch-up. */
  updatesFrame(updates: readonly TextUpdate[], compress: boolean): Buffer {
    const records = encodeRecords(updates);
    const frame = frameBytes(FRAME.updates, records, compress);
    this.counts.rawBytes += records.length;
    this.counts.packedBytes += frame.length;
    return frame;
  }

  /** Encodes the end of a group: with all updates since `begin`, the client has this state. */
  endFrame(head: CrumbHead): Buffer {
    return frameBytes(FRAME.end, encodeHead(head));
  }

  #schedule(): void {
    if (this.#timer !== undefined) return;
    const waitMs = Math.max(0, this.#publishedAt + this.#paceMs() - this.#now());
    this.#timer = setTimeout(() => this.publish(), waitMs);
  }

  /** Returns the index after the last change that fits into a crumb with the change at `start`. */
  #endOfCrumb(changes: readonly TextUpdate[], start: number): number {
    let [end, bytes] = [start, 0];
    for (const change of changes.slice(start, start + this.#maxBatch)) {
      bytes += sizeOf(change);
      if (end > start && bytes > MAX_FRAME_BYTES) break;
      end++;
    }
    return end;
  }

  #addCrumb(changes: readonly TextUpdate[], status: SyncStatus): void {
    const head: CrumbHead = { sequence: this.#head.sequence + 1, status, time: this.#now() };
    for (const change of changes) this.#apply(change, head.sequence);
    const frame = new SharedFrame((compress) =>
      frameBytes(FRAME.crumb, Buffer.concat([encodeHead(head), encodeRecords(changes)]), compress),
    );
    this.#head = head;
    this.counts.lastCrumb = changes.length;
    const sizeBytes = changes.reduce((sum, change) => sum + sizeOf(change), 0);
    this.#crumbs.push({ ...head, changes, sizeBytes, frame });
    this.#crumbChanges += changes.length;
    this.#crumbBytes += sizeBytes;
    let drop = 0;
    while (
      this.#crumbs.length - drop > MAX_CRUMBS ||
      this.#crumbChanges > MAX_CRUMB_CHANGES ||
      this.#crumbBytes > MAX_CRUMB_BYTES
    ) {
      const oldest = this.#crumbs[drop++];
      this.#crumbChanges -= oldest?.changes.length ?? 0;
      this.#crumbBytes -= oldest?.sizeBytes ?? 0;
    }
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
    const before = leaf.entries[at];
    const isKnown = before?.path === entry.path;
    leaf.entries.splice(at, isKnown ? 1 : 0, entry);
    leaf.sizeBytes += sizeOf(entry) - (isKnown ? sizeOf(before) : 0);
    touch(leaf, entry.sequence);
    const length = leaf.entries.length;
    if (length <= LEAF_SPLIT && (leaf.sizeBytes <= MAX_FRAME_BYTES || length === 1)) return;
    // New paths mostly arrive in order, so a leaf that grows at its end stays almost full.
    const splitAt = at >= length - 1 ? length - 1 : length >> 1;
    const right = leaf.entries.splice(splitAt);
    leaf.packed = leaf.plain = undefined;
    const created = newLeaf(right, leaf.sequence);
    leaf.sizeBytes -= created.sizeBytes;
    this.#leaves.splice(i + 1, 0, created);
  }

  #removeEntry(path: string, sequence: number): void {
    const i = this.#leafIndex(path);
    const leaf = this.#leaves[i];
    if (leaf === undefined) return;
    const [removed] = leaf.entries.splice(lowerBound(leaf.entries, path), 1);
    leaf.sizeBytes -= removed === undefined ? 0 : sizeOf(removed);
    touch(leaf, sequence);
    if (leaf.entries.length === 0) this.#leaves.splice(i, 1);
  }

  /** Returns the index of the last leaf that starts at or before a path. */
  #leafIndex(path: string): number {
    let [low, high] = [0, this.#leaves.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#leaves[middle]?.entries[0]?.path ?? "") <= path) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #deleteOldDeletions(): void {
    const oldest = this.#now() - this.#memoryMs;
    for (const [path, { sequence, at }] of this.#deletions) {
      if (at >= oldest && this.#deletions.size <= MAX_DELETIONS) return;
      this.#deletions.delete(path);
      this.#forgottenSequence = sequence;
    }
  }
}

const sizeOf = ({ path, value }: TextUpdate): number => path.length + (value?.length ?? 0);

const newLeaf = (entries: Entry[], sequence: number): Leaf => ({
  entries,
  sizeBytes: entries.reduce((sum, entry) => sum + sizeOf(entry), 0),
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
