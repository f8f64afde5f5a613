// Compacts etcd periodically, because etcd otherwise keeps every version of every key. Each time it compacts up to the revision
// of one period ago. A watcher that is further behind lists again.
import type { Datastore, Revision } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { pause } from "../lib/retry.ts";

interface Compactable extends Datastore {
  compact(revision: Revision): Promise<void>;
}

const RETRY_MS = 60_000;
const isCompactable = (store: Datastore): store is Compactable => "compact" in store;

export async function compactPeriodically(
  options: { readonly store: Datastore; readonly periodMs: number; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  const { store, periodMs, log } = options;
  if (periodMs <= 0 || store.name !== "etcdv3" || !isCompactable(store)) return;
  let old: Revision | undefined;
  while (!signal.aborted)
    try {
      const { revision } = await store.list({ type: "resource", kind: "ClusterInformation" }, { signal });
      if (old !== undefined && old !== revision) {
        await store.compact(old);
        log.debug("compacted etcd", { revision: old });
      }
      old = revision;
      await pause(periodMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      // Another program may have compacted a later revision, so the next attempt starts with the current one.
      log.warn("cannot compact etcd, retrying", { error: describeError(error) });
      old = undefined;
      await pause(Math.min(RETRY_MS, periodMs), signal);
    }
}
