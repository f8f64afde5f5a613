// Moves policies of older releases, which are stored as `default.NAME`, to their own names. Waits until no
// node runs a release that would not find them there. No other controller waits for this one.
import {
  type Datastore,
  type KubeApi,
  type KubeObject,
  migratePolicyNames,
  Unsupported,
  ValidationFailed,
} from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { RepeatedError } from "../lib/log/repeated-error.ts";
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

export interface PolicyNameOptions {
  readonly api: KubeApi;
  readonly store: Datastore;
  readonly namespace: string;
  readonly log: Logger;
}

export async function migrateWhenRolledOut(options: PolicyNameOptions, signal: AbortSignal): Promise<void> {
  const { api, namespace, log } = options;
  const path = `/apis/apps/v1/namespaces/${encodeURIComponent(namespace)}/daemonsets/calico-node`;
  const repeatedError = new RepeatedError();
  for (let waitMs = POLL_MS; !signal.aborted; waitMs = Math.min(60_000, waitMs * 1.2)) {
    if ((await isRolledOut(api, path, { log, signal })) && (await migrate(options, repeatedError, signal))) return;
    await pause(waitMs, signal);
  }
}

/** @returns whether nothing is left to do; a policy whose new name the datastore rejects stays as it is */
async function migrate(
  { store, log }: PolicyNameOptions,
  repeatedError: RepeatedError,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const { moved, failures } = await migratePolicyNames(store, { signal });
    if (moved > 0) log.info("moved policies of older releases to their own names", { moved });
    const reasons = failures.map(({ policy, error }) => ({ policy, error: describeError(error) }));
    if (reasons.length > 0 && repeatedError.shouldLog(JSON.stringify(reasons)))
      for (const reason of reasons) log.warn("policy of an older release cannot be moved to its own name", reason);
    return failures.every(({ error }) => error instanceof ValidationFailed || error instanceof Unsupported);
  } catch (error) {
    if (!signal.aborted && repeatedError.shouldLog(describeError(error)))
      log.warn("moving policies of older releases to their own names failed, retrying", {
        error: describeError(error),
      });
    return false;
  }
}

async function isRolledOut(
  api: KubeApi,
  path: string,
  { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
): Promise<boolean> {
  try {
    return isUpdated(await api.get<DaemonSet>(path, { signal }));
  } catch (error) {
    if (!signal.aborted)
      log.debug("cannot read the rollout status of the calico-node DaemonSet", { error: describeError(error) });
    return false;
  }
}

function isUpdated({ metadata, status }: DaemonSet & { readonly metadata: { readonly generation?: number } }): boolean {
  const desired = status?.desiredNumberScheduled ?? 0;
  return (
    (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0) &&
    status?.updatedNumberScheduled === desired &&
    status.currentNumberScheduled === desired &&
    (status.numberUnavailable ?? 0) === 0
  );
}
