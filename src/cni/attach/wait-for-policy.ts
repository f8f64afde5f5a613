// Waiting until the node agent has programmed the new endpoint's policy. It says so with a file per endpoint; while it
// is not running nobody waits, because the interface is closed until it comes.
import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { delay } from "../../lib/retry.ts";
import { endpointStatusFileName } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { type StoredEndpoint, storedIdentity } from "./endpoint.ts";
import type { EndpointIdentity } from "../request/identity.ts";

/** Touched by the agent while it runs. */
export const FELIX_ALIVE_FILE = "felix-alive";
const ALIVE_FOR_MS = 30_000;
const FIRST_LOOK_MS = 2;
const LONGEST_LOOK_MS = 100;

/** @param existing the endpoint that this ADD found and kept or replaced */
export async function waitForPolicy(
  context: Pick<CniContext, "conf" | "identity" | "log" | "isCallerConnected">,
  existing: StoredEndpoint | undefined,
): Promise<void> {
  const { conf, identity, log, isCallerConnected = () => true } = context;
  const seconds = conf.policySetupTimeoutSeconds;
  if (seconds <= 0 || !isAgentAlive(conf.endpointStatusDir)) return;
  const file = join(conf.endpointStatusDir, statusFile(storedIdentity(identity, existing)));
  const end = performance.now() + seconds * 1000;
  for (
    let wait = FIRST_LOOK_MS;
    !existsSync(file) && isCallerConnected();
    wait = Math.min(wait * 1.5, LONGEST_LOOK_MS)
  ) {
    if (performance.now() >= end) {
      log.warn("Policy was not programmed in time; the interface stays closed until it is", { seconds, file });
      return;
    }
    await delay(wait);
  }
}

function statusFile({ orchestrator, namespace, pod, containerId, endpoint }: EndpointIdentity): string {
  const name = orchestrator === "k8s" ? pod : containerId;
  return endpointStatusFileName({ orchestrator, workload: `${namespace}/${name}`, endpoint });
}

function isAgentAlive(statusDir: string): boolean {
  try {
    return Date.now() - statSync(join(dirname(statusDir), FELIX_ALIVE_FILE)).mtimeMs < ALIVE_FOR_MS;
  } catch {
    return false;
  }
}
