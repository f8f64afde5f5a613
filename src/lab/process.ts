// Starts, finds and stops the background processes of a lab. Each has a log file and a pid file with its start time, because the
// kernel reuses pids.
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

/** Starts a detached command; its output goes to its log. */
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
    child.on("error", () => {}); // findProcess then finds no process
    child.unref();
    if (child.pid === undefined) throw new Error(`cannot start ${file}`);
    const identity = { pid: child.pid, startTime: startTimeOf(child.pid) ?? "gone" };
    writeFileSync(folder.pidFile(name), `${identity.pid} ${identity.startTime}\n`);
    return identity;
  } finally {
    closeSync(out);
  }
}

/** Returns undefined if the process does not run. */
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

/** The folder of named network namespaces in a process's mount namespace: a host's names exist only there. */
export const namespaceFolderOf = (pid: number): string => join("/proc", String(pid), "root/run/netns");

/** Sends SIGTERM, and SIGKILL after `graceMs`. */
export async function stopProcess(folder: LabFolder, name: string, graceMs: number): Promise<void> {
  const identity = findProcess(folder, name);
  if (identity !== undefined) await stopProcesses([identity], graceMs);
  rmSync(folder.pidFile(name), { force: true });
}

export async function stopProcesses(identities: readonly ProcessIdentity[], graceMs: number): Promise<void> {
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
    // it has exited meanwhile
  }
}

/**
 * Returns all processes in these network namespaces, and all that have the lab's shared folder mounted as the host's
 * datastore. The latter finds programs of pods even if their host was killed.
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
  const source = folder.shared.slice(dirname(LAB_ROOT).length); // /var/lib may be a separate file system
  try {
    return parseMountinfo(readFileSync(`/proc/${pid}/mountinfo`, "utf8")).some(
      ({ root, mountPoint }) => mountPoint === HOST_DATASTORE && root.endsWith(source),
    );
  } catch {
    return false; // exited meanwhile
  }
}

export function namespaceOf(pid: number, kind: "net" | "mnt" = "net"): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/${kind}`);
  } catch {
    return ""; // exited meanwhile
  }
}

/** Whether a host's holder has finished the setup script. Until then, it sees the machine's files and namespaces. */
export function isHostReady(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8") === "sleep\0infinity\0";
  } catch {
    return false; // exited meanwhile
  }
}

/** Returns the running processes that have a pid file. */
export function recordedProcesses(folder: LabFolder): ProcessIdentity[] {
  try {
    return readdirSync(join(folder.path, "pid")).flatMap((name) => findProcess(folder, name) ?? []);
  } catch {
    return []; // no process has been started
  }
}
