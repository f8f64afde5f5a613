// Implements the small modes of calico-node.
import { chownSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { keepTokenFresh } from "../../cni/index.ts";
import { aborted } from "../../lib/retry.ts";
import { monitorAddresses } from "../startup/address-monitor.ts";
import { FatalNodeError } from "../failure.ts";
import { runMode } from "../mode.ts";
import { completeStartup, shutDown } from "../startup/network-condition.ts";
import { openNodeDatastore } from "../node-datastore.ts";
import { nodeName } from "../startup/node-name.ts";
import { type Check, CHECKS, probeAll } from "./probes.ts";
import { CNI_KUBECONFIG, readSettings } from "../settings.ts";
import { runUntilSignal } from "../signals.ts";
import { reportStatus } from "../bgp/status-reporter.ts";

/** `-felix-live`, `-bird-ready`, …: returns 0 if all requested checks succeed. */
export async function health(checks: readonly Check[], thresholdMs: number): Promise<number> {
  const fault = await probeAll(
    CHECKS.filter((check) => checks.includes(check)),
    { env: process.env, thresholdMs },
  );
  if (fault === undefined) return 0;
  console.log(fault);
  return 1;
}

export function monitor(): Promise<number> {
  return runMode("address monitor failed", async (log) => {
    const settings = readSettings(process.env);
    const name = nodeName({ env: process.env, file: settings.nodenameFile }, log);
    await runUntilSignal(async (signal) => {
      await using opened = await openNodeDatastore(process.env, { log, retryUntil: signal });
      await monitorAddresses(opened.store, name, settings, log, signal);
    });
  });
}

/** `-status-reporter`: updates the CalicoNodeStatus resources of this node. */
export function statusReporter(): Promise<number> {
  return runMode("status reporter failed", async (log) => {
    const node = process.env["NODENAME"] ?? "";
    if (node === "") throw new FatalNodeError("NODENAME environment is not set");
    await runUntilSignal(async (signal) => {
      await using opened = await openNodeDatastore(process.env, { log, retryUntil: signal });
      await reportStatus({ env: process.env, store: opened.store, node, log }, signal);
    });
  });
}

/** `-monitor-token`: renews the CNI plugin's credentials on the host before they expire. */
export function monitorToken(): Promise<number> {
  return runMode("could not renew the CNI plugin's token", (log) =>
    runUntilSignal(async (signal) => {
      await keepTokenFresh({ env: process.env, log, signal, path: CNI_KUBECONFIG });
      if (!signal.aborted)
        throw new FatalNodeError(
          "no Kubernetes API server configured: set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT",
        );
    }),
  );
}

/** `-complete-startup`: does not exit when done, because a container that exits is restarted. */
export function complete(): Promise<number> {
  return runMode("could not complete the startup", async (log) => {
    const settings = readSettings(process.env);
    const name = nodeName({ env: process.env, file: settings.nodenameFile }, log);
    await runUntilSignal(async (signal) => {
      await completeStartup(settings, name, log, signal);
      await aborted(signal);
    });
  });
}

/** `-shutdown`: returns 0 even on failure, because the node stops anyway. */
export async function shutdown(): Promise<number> {
  await runMode("could not report the shutdown", async (log) => {
    const settings = readSettings(process.env);
    await shutDown(settings, nodeName({ env: process.env, file: settings.nodenameFile }, log), log);
  });
  return 0;
}

/** `-hostpath-init`: creates the host's folders for a calico-node that does not run as root. */
export function hostpathInit(text = process.env["NODE_USER_ID"] ?? "1000", root = "/"): number {
  const user = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(user)) throw new FatalNodeError(`NODE_USER_ID=${text} is not a user ID`);
  for (const folder of ["var/lib/calico", "var/run/calico", "var/log/calico"]) {
    const path = join(root, folder);
    mkdirSync(path, { recursive: true, mode: 0o700 });
    chownSync(path, user, user);
  }
  const cni = join(root, "var/log/calico/cni");
  mkdirSync(cni, { recursive: true, mode: 0o700 });
  for (const file of readdirSync(cni, { recursive: true, encoding: "utf8" })) chownSync(join(cni, file), user, user);
  chownSync(cni, user, user);
  return 0;
}
