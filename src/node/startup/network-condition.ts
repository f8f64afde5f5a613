// Sets the Kubernetes node condition NetworkUnavailable when this node is ready and when it shuts down. Does nothing without
// Kubernetes.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Environment } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay, pause } from "../../lib/retry.ts";
import { FatalNodeError } from "../failure.ts";
import { findKubernetes, setNetworkUnavailable } from "./kubernetes-facts.ts";
import { type Check, probeAll } from "../commands/probes.ts";
import type { NodeSettings } from "../settings.ts";

const READY_WITHIN_MS = 5 * 60_000;
const PATCH_WITHIN_MS = 30_000;

const shutdownFile = (env: Environment): string =>
  env["CALICO_SHUTDOWN_TIMESTAMP_FILE"] || "/var/lib/calico/shutdownTS";

/** Waits until the probes succeed, for at most `READY_WITHIN_MS`, then reports that the network is up. */
export async function completeStartup(
  settings: NodeSettings,
  node: string,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  const { env, backend } = settings;
  const checks: Check[] = [
    ...(backend === "bird" ? (["bird-ready", "bird6-ready"] as const) : []),
    ...(env["FELIX_HEALTHENABLED"] === "true" ? (["felix-ready"] as const) : []),
  ];
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  for (let logged = ""; Date.now() < deadlineMs && !signal.aborted; await pause(1000, signal)) {
    const fault = await probeAll(checks, { env, thresholdMs: READY_WITHIN_MS });
    if (fault === undefined) break;
    if (fault !== logged) log.info("node is not ready yet", { because: fault });
    logged = fault;
  }
  if (signal.aborted) return;
  await reportNetworkUp(settings, node, log, signal);
}

/** Sets the node condition, and deletes the shutdown timestamp of the last run. */
export async function reportNetworkUp(
  settings: NodeSettings,
  node: string,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  if (settings.backend !== "none") await setNetworkAvailable(settings, node, log, signal);
  rmSync(shutdownFile(settings.env), { force: true });
}

async function setNetworkAvailable(
  settings: NodeSettings,
  node: string,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  const api = await findKubernetes(settings.env);
  if (api === undefined) return;
  for (const deadlineMs = Date.now() + PATCH_WITHIN_MS; ; await delay(1000, signal))
    try {
      await setNetworkUnavailable(api, settings.kubernetesNode ?? node, false, signal);
      log.info("set node condition NetworkUnavailable=False");
      return;
    } catch (error) {
      if (Date.now() > deadlineMs)
        throw new FatalNodeError(`cannot set node condition NetworkUnavailable=False: ${describeError(error)}`, {
          cause: error,
        });
    }
}

/** Writes the shutdown timestamp, and retries without limit to set the node condition, so that no new pods are scheduled here. */
export async function shutDown(settings: NodeSettings, node: string, log: Logger): Promise<void> {
  const file = shutdownFile(settings.env);
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, new Date().toISOString().replace(/\.\d+/, ""));
  } catch (error) {
    log.error("could not write the shutdown timestamp", { file, error });
  }
  if (settings.backend === "none") return;
  const api = await findKubernetes(settings.env);
  if (api === undefined) return;
  for (;;)
    try {
      return await setNetworkUnavailable(api, settings.kubernetesNode ?? node, true);
    } catch (error) {
      log.warn("could not set node condition NetworkUnavailable=True, retrying", { error: describeError(error) });
      await delay(1000);
    }
}
