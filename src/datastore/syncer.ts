// What flows from a datastore (or Typha) to Felix, BGP and the tunnel allocator: status changes and batches of updates.
// Only eventual state is promised: updates may be coalesced or repeated, never invented; consumers see no gap.
import type { Key, ValueOf } from "../model/index.ts";

export type SyncStatus = "wait-for-ready" | "resync" | "in-sync";

/** A key and what it now is; `value` undefined = it is gone (or unreadable, which counts as gone). */
export type SyncerUpdate<K extends Key = Key> = K extends Key
  ? {
      readonly key: K;
      readonly value: ValueOf<K> | undefined;
      readonly revision?: string;
      readonly change: "new" | "updated" | "deleted";
    }
  : never;

export interface SyncerSink {
  onStatus(status: SyncStatus): void;
  /** @param paths of their keys, in the same order, from a source that has them at hand */
  onUpdates(updates: readonly SyncerUpdate[], paths?: readonly string[]): void;
  /** An entry that could not be parsed: to be reported by key. */
  onUnreadable?(path: string, reason: string): void;
}

/** Runs until its signal aborts; feeds the sink from one task, never concurrently. */
export interface Syncer {
  run(sink: SyncerSink, signal: AbortSignal): Promise<void>;
  /** Time since the emitted state was known to be current; 0 while connected. */
  readonly viewAgeMs: number;
}

export type SyncerName = "felix" | "bgp" | "tunnel-ip-allocation" | "node-status";
