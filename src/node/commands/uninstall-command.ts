// Implements calico-node -uninstall, which removes Calico from a host. It runs after the agent has stopped, on the host
// itself or in a container that has the host's folders under /host. Logs, datastores and everything below mount points are
// kept; --purge also deletes the datastore. Each step can be repeated.
import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { configFromEnvironment, DEFAULT_SQLITE_PATH } from "../../datastore/index.ts";
import { isListening, readMounts } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { planChildren, SUPERVISOR_FILE } from "../supervisor/children.ts";
import { FatalNodeError } from "../failure.ts";
import { stopLeftovers } from "../supervisor/leftover-processes.ts";
import { runMode } from "../mode.ts";
import { runUntilSignal } from "../signals.ts";
import { planRemoval } from "./state-removal.ts";

/** Control sockets of a BIRD that calico-node did not start, relative to the root; common paths of distributions. */
const FOREIGN_BIRD = ["run/bird/bird.ctl", "run/bird.ctl", "var/run/bird/bird.ctl", "var/run/bird.ctl"];

/** Control sockets of the BIRDs that calico-node starts. */
const BIRD_SOCKETS = ["bird.ctl", "bird6.ctl"];

export function runUninstall({ purge }: Pick<UninstallOptions, "purge">): Promise<number> {
  return runMode("could not remove Calico from this node", async (log) => {
    const root = existsSync("/host/etc/cni/net.d") ? "/host" : "/";
    await runUntilSignal((signal) => uninstall({ root, env: process.env, purge, log }, signal));
    log.info("removed Calico from this node");
  });
}

export interface UninstallOptions {
  /** The host's root directory. */
  readonly root: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Deletes the SQLite datastore as well. */
  readonly purge: boolean;
  readonly log: Logger;
}

export async function uninstall(options: UninstallOptions, signal: AbortSignal): Promise<void> {
  const { root, env, log } = options;
  const run = join(root, "var/run/calico");
  if (isListening(join(run, "cni.sock")))
    throw new FatalNodeError("calico-node still runs on this host: delete its DaemonSet, or stop its service, first");
  // A BIRD or Felix whose calico-node was killed would add routes and rules again.
  await stopLeftovers({ file: join(run, basename(SUPERVISOR_FILE)), plans: planChildren(env, "", "bird"), log });
  const bird = BIRD_SOCKETS.map((name) => join(run, name)).find(isListening);
  if (bird !== undefined)
    throw new FatalNodeError(
      `a BIRD that calico-node started still runs and would add routes again: it listens at ${bird}, but ${SUPERVISOR_FILE} does not contain its pid; stop it first (ss -xlp shows the process)`,
    );
  removeCni(root, env, log); // from here on, no new pods
  const foreign = FOREIGN_BIRD.map((path) => join(root, path)).find(isListening);
  if (foreign !== undefined)
    log.warn("another BIRD runs on this host; keeping all BIRD routes, because they may be its own", { foreign });
  const { removeFromKernel } = await import("../../felix/index.ts");
  await removeFromKernel({ env, logger: log, withBird: foreign === undefined }, signal);
  removeState(run, options);
}

function removeCni(root: string, env: UninstallOptions["env"], log: Logger): void {
  const folder = join(root, "etc/cni/net.d");
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const configName = env["CNI_CONF_NAME"] || "10-calico.conflist";
  for (const name of names.filter((file) => file === configName && isCalicoConfig(join(folder, file)))) {
    rmSync(join(folder, name));
    log.info("removed the CNI configuration", { file: join(folder, name) });
  }
  for (const name of ["calico-kubeconfig", "calico-tls"]) rmSync(join(folder, name), { recursive: true, force: true });
  for (const name of ["calico", "calico-ipam"]) rmSync(join(root, "opt/cni/bin", name), { force: true });
}

/** Another network plugin may have replaced the file under the same name. */
function isCalicoConfig(file: string): boolean {
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

function removeState(run: string, { root, env, purge, log }: UninstallOptions): void {
  const plan = planRemoval({
    folders: [join(root, "var/lib/calico"), run],
    datastore: join(root, resolve(configFromEnvironment(env).sqlitePath ?? DEFAULT_SQLITE_PATH)),
    purge,
    mountPoints: new Set(readMounts().map(({ mountPoint }) => mountPoint)),
  });
  for (const path of plan.purged) log.warn("deleting a datastore file", { path });
  for (const path of plan.files) rmSync(path, { force: true });
  for (const path of plan.directories) rmdirSync(path);
  for (const { path, kind, isOnOtherMount } of plan.kept)
    if (kind === "mount point") log.info("kept a mount point and everything below it", { path });
    else if (isOnOtherMount) log.info("kept a datastore file on another mount, which other hosts may use", { path });
    else log.info("kept a datastore file; calico-node -uninstall --purge deletes it", { path });
}
