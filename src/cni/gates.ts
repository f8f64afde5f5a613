// What must be true before a pod may be attached: Calico says it is ready, and so do the URLs the operator named.
import { type Datastore, NotFound } from "../datastore/index.ts";
import { delay } from "../lib/retry.ts";
import { CniError, INTERNAL } from "./error.ts";

const GATE_INTERVAL_MS = 5000;
export const GATE_TIMEOUT_SECONDS = 30;
const GATE_TIMEOUT_MS = GATE_TIMEOUT_SECONDS * 1000;

/** @param signal for this question alone: who is never answered need ask no other */
export async function checkDatastoreReady(store: Datastore, signal?: AbortSignal): Promise<void> {
  let spec: { readonly datastoreReady?: unknown };
  try {
    const options = signal === undefined ? {} : { signal };
    const stored = await store.get({ type: "resource", kind: "ClusterInformation", name: "default" }, options);
    spec = stored.value.spec as typeof spec;
  } catch (error) {
    if (!(error instanceof NotFound)) throw error;
    throw new CniError(
      INTERNAL,
      "error getting ClusterInformation: resource does not exist: ClusterInformation(default)",
      "the node agent creates it when it first starts",
    );
  }
  if (spec.datastoreReady !== true) throw new CniError(INTERNAL, "Calico is currently not ready to process requests");
}

/** Each URL in turn must answer 200 to 399 within half a minute. */
export async function waitForReadinessGates(gates: readonly string[], intervalMs = GATE_INTERVAL_MS): Promise<void> {
  for (const gate of gates) {
    const url = URL.canParse(gate) ? new URL(gate) : undefined;
    if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:"))
      throw new CniError(INTERNAL, `readiness gate ${JSON.stringify(gate)}: want an http or https URL`);
    await waitForGate(url, intervalMs);
  }
}

async function waitForGate(url: URL, intervalMs: number): Promise<void> {
  let last = "it was never asked";
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
