// Defines the stream from a datastore (or Typha) to Felix, BGP and the tunnel allocator: status changes and batches of
// updates. Only the final state is guaranteed: updates of a key may be merged or repeated, and no key is missed.
import type { Key, ValueOf } from "../model/index.ts";

export type SyncStatus = "wait-for-ready" | "resync" | "in-sync";

/** A key and its present value; `value` undefined = deleted (or unreadable, which counts as deleted). */
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
  /** @param paths the key path of each update, in the same order, if the source has computed them */
  onUpdates(updates: readonly SyncerUpdate[], paths?: readonly string[]): void;
  /** Called for an entry that cannot be parsed. */
  onUnreadable?(path: string, reason: string): void;
}

/** Runs until its signal aborts. Calls of the sink never overlap. */
export interface Syncer {
  run(sink: SyncerSink, signal: AbortSignal): Promise<void>;
  /** Time since the emitted state was known to be current; 0 while connected. */
  readonly viewAgeMs: number;
}

export type SyncerName = "felix" | "bgp" | "tunnel-ip-allocation" | "node-status";
