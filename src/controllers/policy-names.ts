// Moves policies of older releases to their own names, once no node runs a release that would not find them there. Waits
// by itself: nothing else waits for it.
import { type Datastore, type KubeApi, type KubeObject, migratePolicyNames } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { pause } from "../lib/retry.ts";

interface DaemonSet extends KubeObject {
  readonly status?: {
    readonly observedGeneration?: number;
    readonly desiredNumberScheduled?: number;
    readonly updatedNumberScheduled?: number;
    readonly currentNumberScheduled?: number;
    readonly numberUnavailable?: number;
  };
}

const POLL_MS = 5_000;

export async function migrateWhenRolledOut(
  options: { readonly api: KubeApi; readonly store: Datastore; readonly namespace: string; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  const { api, store, namespace, log } = options;
  const path = `/apis/apps/v1/namespaces/${encodeURIComponent(namespace)}/daemonsets/calico-node`;
  for (let waitMs = POLL_MS; !signal.aborted; waitMs = Math.min(60_000, waitMs * 1.2))
    try {
      if (isRolledOut(await api.get<DaemonSet>(path, { signal }))) {
        const moved = await migratePolicyNames(store, { signal });
        if (moved > 0) log.info("moved policies of older releases to their own names", { moved });
        return;
      }
      await pause(waitMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      log.debug("cannot tell whether calico-node is rolled out", { error: describeError(error) });
      await pause(waitMs, signal);
    }
}

function isRolledOut({
  metadata,
  status,
}: DaemonSet & { readonly metadata: { readonly generation?: number } }): boolean {
  const desired = status?.desiredNumberScheduled ?? 0;
  return (
    (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0) &&
    status?.updatedNumberScheduled === desired &&
    status.currentNumberScheduled === desired &&
    (status.numberUnavailable ?? 0) === 0
  );
}
