// etcd keeps every version of every key until it is told to forget: told here, once per period, to forget what was old a
// period ago. Watchers that are further behind list again.
import type { Datastore, Revision } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
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
        log.debug("told etcd to forget old revisions", { before: old });
      }
      old = revision;
      await pause(periodMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      // Another replica or program may have been there first; the next revision is a new chance.
      log.warn("cannot make etcd forget old revisions; trying again", { error: describeError(error) });
      old = undefined;
      await pause(Math.min(RETRY_MS, periodMs), signal);
    }
}
