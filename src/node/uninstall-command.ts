// calico-node -uninstall: the host as it was before. Run once the agent has stopped; in a container with the host's
// folders under /host, or on the host itself. Logs stay, for whoever asks later. Each step can be repeated.
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isListening } from "../kernel/index.ts";
import type { Logger } from "../lib/log.ts";
import { NodeFailure } from "./failure.ts";
import { runMode } from "./mode.ts";
import { runUntilSignal } from "./signals.ts";

/** Where a BIRD that is not ours answers, on Debian and its kin. */
const FOREIGN_BIRD = ["run/bird/bird.ctl", "run/bird.ctl", "var/run/bird/bird.ctl", "var/run/bird.ctl"];

export function main(): Promise<number> {
  return runMode("Calico could not be removed from this node", async (log) => {
    const root = existsSync("/host/etc/cni/net.d") ? "/host" : "/";
    await runUntilSignal((signal) => uninstall({ root, env: process.env, log }, signal));
    log.info("Calico is gone from this node");
  });
}

export interface UninstallOptions {
  /** Where the host's files are. */
  readonly root: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
}

export async function uninstall({ root, env, log }: UninstallOptions, signal: AbortSignal): Promise<void> {
  const run = join(root, "var/run/calico");
  if (isListening(join(run, "cni.sock")))
    throw new NodeFailure("calico-node still runs on this host: delete its DaemonSet, or stop its service, first");
  removeCni(root, env, log); // no new pods from here on
  const foreign = FOREIGN_BIRD.map((path) => join(root, path)).find(isListening);
  if (foreign !== undefined) log.warn("another BIRD runs on this host: routes it may have written stay", { foreign });
  const { removeFromKernel } = await import("../felix/index.ts");
  await removeFromKernel({ env, logger: log, withBird: foreign === undefined }, signal);
  for (const folder of [run, join(root, "var/lib/calico")]) empty(folder);
}

function removeCni(root: string, env: UninstallOptions["env"], log: Logger): void {
  const folder = join(root, "etc/cni/net.d");
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const wanted = env["CNI_CONF_NAME"] || "10-calico.conflist";
  for (const name of names.filter((file) => file === wanted && isOurs(join(folder, file)))) {
    rmSync(join(folder, name));
    log.info("the CNI configuration is gone", { file: join(folder, name) });
  }
  for (const name of ["calico-kubeconfig", "calico-tls"]) rmSync(join(folder, name), { recursive: true, force: true });
  for (const name of ["calico", "calico-ipam"]) rmSync(join(root, "opt/cni/bin", name), { force: true });
}

/** The file may have been replaced by another network's under the old name. */
function isOurs(file: string): boolean {
  try {
    const { plugins, type } = JSON.parse(readFileSync(file, "utf8")) as {
      readonly plugins?: readonly { readonly type?: string }[];
      readonly type?: string;
    };
    return [type, ...(plugins ?? []).map((plugin) => plugin.type)].includes("calico");
  } catch {
    return false;
  }
}

/** The folder itself may be a mount point. */
function empty(folder: string): void {
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true, force: true });
}
