// Processes of a lab: started into the background with a log and a pid file, recognised again later by pid and start
// time (a pid alone may have been given to somebody else), and ended for certain.
import { spawn } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { parseMountinfo } from "../kernel/index.ts";
import { type ProcessIdentity, isRunning, startTimeOf } from "../lib/process/process-identity.ts";
import { delay } from "../lib/retry.ts";
import { HOST_DATASTORE, LAB_ROOT, type LabFolder } from "./folder.ts";

/** Starts a command detached from us; its output goes to its log. */
export function startProcess(
  folder: LabFolder,
  name: string,
  command: readonly [string, ...string[]],
  environment: Readonly<Record<string, string>>,
): ProcessIdentity {
  const log = folder.log(name);
  mkdirSync(dirname(log), { recursive: true });
  const out = openSync(log, "a");
  try {
    const [file, ...args] = command;
    const child = spawn(file, args, { detached: true, stdio: ["ignore", out, out], env: { ...environment } });
    child.on("error", () => {}); // a missing program shows as a process that is not there
    child.unref();
    if (child.pid === undefined) throw new Error(`cannot start ${file}`);
    const identity = { pid: child.pid, startTime: startTimeOf(child.pid) ?? "gone" };
    writeFileSync(folder.pidFile(name), `${identity.pid} ${identity.startTime}\n`);
    return identity;
  } finally {
    closeSync(out);
  }
}

/** The process of that name if it still runs. */
export function findProcess(folder: LabFolder, name: string): ProcessIdentity | undefined {
  let text: string;
  try {
    text = readFileSync(folder.pidFile(name), "utf8");
  } catch {
    return undefined;
  }
  const [pid, startTime] = text.trim().split(" ");
  const identity = { pid: Number(pid), startTime: startTime ?? "" };
  return isRunning(identity) ? identity : undefined;
}

/** Named network namespaces as a process sees them: names made on a host exist in its mount namespace only. */
export const namespacesSeenBy = (pid: number): string => join("/proc", String(pid), "root/run/netns");

/** SIGTERM, then SIGKILL when it does not go. */
export async function stopProcess(folder: LabFolder, name: string, graceMs: number): Promise<void> {
  const identity = findProcess(folder, name);
  if (identity !== undefined) await endProcesses([identity], graceMs);
  rmSync(folder.pidFile(name), { force: true });
}

export async function endProcesses(identities: readonly ProcessIdentity[], graceMs: number): Promise<void> {
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    for (const identity of identities) if (isRunning(identity)) signalProcess(identity.pid, signal);
    const deadline = performance.now() + (signal === "SIGTERM" ? graceMs : 5000);
    while (identities.some(isRunning)) {
      if (performance.now() > deadline) break;
      await delay(10);
    }
  }
}

function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // it ended between the look and the signal
  }
}

/**
 * Every process in one of these network namespaces, whoever started it, and every one that sees the lab's shared folder
 * as its host's datastore: a pod's program is still found when all of its host was killed.
 */
export function processesOf(folder: LabFolder, namespaces: ReadonlySet<string>): ProcessIdentity[] {
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number)
    .filter((pid) => pid !== process.pid && (namespaces.has(namespaceOf(pid)) || isMountedIn(folder, pid)))
    .flatMap((pid) => {
      const startTime = startTimeOf(pid);
      return startTime === undefined ? [] : [{ pid, startTime }];
    });
}

function isMountedIn(folder: LabFolder, pid: number): boolean {
  const source = folder.shared.slice(dirname(LAB_ROOT).length); // /var/lib may be a file system of its own
  try {
    return parseMountinfo(readFileSync(`/proc/${pid}/mountinfo`, "utf8")).some(
      ({ root, mountPoint }) => mountPoint === HOST_DATASTORE && root.endsWith(source),
    );
  } catch {
    return false; // ended meanwhile
  }
}

export function namespaceOf(pid: number, kind: "net" | "mnt" = "net"): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/${kind}`);
  } catch {
    return ""; // ended meanwhile
  }
}

/** Whether a host's first process has become what it stays. Until then it sees the machine's own files and names. */
export function isSettled(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8") === "sleep\0infinity\0";
  } catch {
    return false; // ended meanwhile
  }
}

/** What was started for a lab by name and still runs. */
export function recordedProcesses(folder: LabFolder): ProcessIdentity[] {
  try {
    return readdirSync(join(folder.path, "pid")).flatMap((name) => findProcess(folder, name) ?? []);
  } catch {
    return []; // nothing was started yet
  }
}
