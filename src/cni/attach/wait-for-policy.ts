// Makes CNI ADD wait until Felix has programmed policy for the new endpoint, so that a pod does not start while its
// traffic is still dropped.
//
// Felix creates one file per programmed endpoint in the endpoint status directory; this file polls for it. ADD does not
// wait if Felix is not running, and does not fail on a timeout: traffic of an interface without policy is dropped, so
// returning early is safe.
import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { delay } from "../../lib/retry.ts";
import { endpointStatusFileName } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { type StoredEndpoint, storedIdentity } from "./endpoint.ts";
import type { EndpointIdentity } from "../request/identity.ts";

/** Next to the endpoint status directory. Felix updates its modification time every 10 s and deletes it on shutdown. */
export const FELIX_ALIVE_FILE = "felix-alive";
/** Three missed updates. After a crash the file remains, so its existence alone proves nothing. */
const FELIX_ALIVE_TIMEOUT_MS = 30_000;
/** The delay between polls grows from the first value to the second, by half each time. */
const FIRST_POLL_DELAY_MS = 2;
const MAX_POLL_DELAY_MS = 100;

/**
 * Returns when policy is programmed, on timeout, or when the caller has disconnected.
 * @param existing the endpoint that this ADD found and kept or replaced
 */
export async function waitForPolicy(
  context: Pick<CniContext, "conf" | "identity" | "log" | "isCallerConnected">,
  existing: StoredEndpoint | undefined,
): Promise<void> {
  const { conf, identity, log, isCallerConnected = () => true } = context;
  const timeoutSeconds = conf.policySetupTimeoutSeconds;
  if (timeoutSeconds <= 0 || !isFelixAlive(conf.endpointStatusDir)) return;
  const statusFile = join(conf.endpointStatusDir, formatStatusFileName(storedIdentity(identity, existing)));
  const deadlineMs = performance.now() + timeoutSeconds * 1000;
  let delayMs = FIRST_POLL_DELAY_MS;
  while (!existsSync(statusFile) && isCallerConnected()) {
    if (performance.now() >= deadlineMs) {
      log.warn("policy was not programmed in time; traffic of the new endpoint is dropped until Felix programs it", {
        timeoutSeconds,
        statusFile,
      });
      return;
    }
    await delay(delayMs);
    delayMs = Math.min(delayMs * 1.5, MAX_POLL_DELAY_MS);
  }
}

function formatStatusFileName({ orchestrator, namespace, pod, containerId, endpoint }: EndpointIdentity): string {
  const name = orchestrator === "k8s" ? pod : containerId;
  return endpointStatusFileName({ orchestrator, workload: `${namespace}/${name}`, endpoint });
}

function isFelixAlive(endpointStatusDir: string): boolean {
  try {
    const { mtimeMs } = statSync(join(dirname(endpointStatusDir), FELIX_ALIVE_FILE));
    return Date.now() - mtimeMs < FELIX_ALIVE_TIMEOUT_MS; // the wall clock, because mtimeMs is wall-clock time
  } catch {
    return false; // no file: Felix was stopped, or has never run
  }
}
