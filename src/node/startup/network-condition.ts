// Tells Kubernetes when this node's network is up, and when it goes. A node without Kubernetes has nobody to tell.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Environment } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay, pause } from "../../lib/retry.ts";
import { NodeFailure } from "../failure.ts";
import { findKubernetes, setNetworkUnavailable } from "./kubernetes-facts.ts";
import { type Check, probeAll } from "../commands/probes.ts";
import type { NodeSettings } from "../settings.ts";

const READY_WITHIN_MS = 5 * 60_000;
const PATCH_WITHIN_MS = 30_000;

const shutdownFile = (env: Environment): string =>
  env["CALICO_SHUTDOWN_TIMESTAMP_FILE"] || "/var/lib/calico/shutdownTS";

/** Waits until the parts are ready (or long enough), then says that the network is up. */
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
  const until = Date.now() + READY_WITHIN_MS;
  for (let said = ""; Date.now() < until && !signal.aborted; await pause(1000, signal)) {
    const fault = await probeAll(checks, { env, thresholdMs: READY_WITHIN_MS });
    if (fault === undefined) break;
    if (fault !== said) log.info("the node is not ready yet", { because: fault });
    said = fault;
  }
  if (signal.aborted) return;
  await sayUp(settings, node, log, signal);
}

/** Tells Kubernetes, where there is one, and takes back what the last shutdown said. */
export async function sayUp(settings: NodeSettings, node: string, log: Logger, signal: AbortSignal): Promise<void> {
  if (settings.backend !== "none") await tellUp(settings, node, log, signal);
  rmSync(shutdownFile(settings.env), { force: true });
}

async function tellUp(settings: NodeSettings, node: string, log: Logger, signal: AbortSignal): Promise<void> {
  const api = await findKubernetes(settings.env);
  if (api === undefined) return;
  for (const until = Date.now() + PATCH_WITHIN_MS; ; await delay(1000, signal))
    try {
      await setNetworkUnavailable(api, settings.kubernetesNode ?? node, false, signal);
      log.info("Kubernetes knows that this node's network is up");
      return;
    } catch (error) {
      if (Date.now() > until)
        throw new NodeFailure(`Kubernetes could not be told that the network is up: ${describeError(error)}`, {
          cause: error,
        });
    }
}

/** Says when, and that pods must not be sent here any more; tries until it is told. */
export async function shutDown(settings: NodeSettings, node: string, log: Logger): Promise<void> {
  const file = shutdownFile(settings.env);
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, new Date().toISOString().replace(/\.\d+/, ""));
  } catch (error) {
    log.error("the time of shutdown could not be written", { file, error });
  }
  if (settings.backend === "none") return;
  const api = await findKubernetes(settings.env);
  if (api === undefined) return;
  for (;;)
    try {
      return await setNetworkUnavailable(api, settings.kubernetesNode ?? node, true);
    } catch (error) {
      log.warn("Kubernetes could not be told that this node shuts down, trying again", { error: describeError(error) });
      await delay(1000);
    }
}
