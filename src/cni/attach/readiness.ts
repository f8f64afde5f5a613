// Checks readiness before a pod is attached: ClusterInformation marks the datastore as ready, and the configured readiness-gate
// URLs respond.
import { type CallOptions, type Datastore, NotFound } from "../../datastore/index.ts";
import { delay } from "../../lib/retry.ts";
import { isDatastoreReady, type Resource } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { ROLLBACK_SHARE } from "../deadline.ts";
import { CniError, INTERNAL } from "../error.ts";

/**
 * The first check of a command. The datastore is read only if there is no cache, or if the cache does not show the datastore as
 * ready. On Kubernetes the read has its own time limit, so that a command waits only once for an API server that does not respond.
 */
export async function requireReady({ cache, store, conf, signal }: ReadyContext): Promise<void> {
  if (cache?.isDatastoreReady === true) return;
  const timeoutMs = conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000;
  const limit = store.name === "kubernetes" ? AbortSignal.timeout(timeoutMs) : signal;
  await checkDatastoreReady(store, limit === undefined ? {} : { signal: limit });
}
type ReadyContext = Pick<CniContext, "cache" | "store" | "conf" | "signal">;

const GATE_INTERVAL_MS = 5000;
export const GATE_TIMEOUT_SECONDS = 30;
const GATE_TIMEOUT_MS = GATE_TIMEOUT_SECONDS * 1000;

/** @throws CniError if ClusterInformation does not exist or marks the datastore as not ready */
export async function checkDatastoreReady(store: Datastore, call: CallOptions = {}): Promise<void> {
  let information: Resource;
  try {
    const stored = await store.get({ type: "resource", kind: "ClusterInformation", name: "default" }, call);
    information = stored.value;
  } catch (error) {
    if (!(error instanceof NotFound)) throw error;
    throw new CniError(
      INTERNAL,
      "error getting ClusterInformation: resource does not exist: ClusterInformation(default)",
      "the node agent creates it when it first starts",
    );
  }
  if (!isDatastoreReady(information)) throw new CniError(INTERNAL, "Calico is currently not ready to process requests");
}

/** Waits until each URL has returned a status from 200 to 399, for at most 30 seconds per URL. */
export async function waitForReadinessGates(gates: readonly string[], intervalMs = GATE_INTERVAL_MS): Promise<void> {
  for (const gate of gates) {
    const url = URL.canParse(gate) ? new URL(gate) : undefined;
    if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:"))
      throw new CniError(INTERNAL, `readiness gate ${JSON.stringify(gate)}: want an http or https URL`);
    await waitForGate(url, intervalMs);
  }
}

async function waitForGate(url: URL, intervalMs: number): Promise<void> {
  let last = "no request was sent";
  for (let waited = intervalMs; waited <= GATE_TIMEOUT_MS; waited += intervalMs) {
    await delay(intervalMs);
    try {
      const reply = await fetch(url, { redirect: "manual", signal: AbortSignal.timeout(GATE_INTERVAL_MS) });
      if (reply.status >= 200 && reply.status < 400) return;
      last = `status ${reply.status}`;
    } catch (error) {
      last = error instanceof Error ? error.message : String(error);
    }
  }
  throw new CniError(INTERNAL, `readiness gate ${url.href} did not become ready in ${GATE_TIMEOUT_SECONDS} s: ${last}`);
}
