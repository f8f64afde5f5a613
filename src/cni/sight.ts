// What another process sees at a path. In its mount namespace, or below its root, the same name may lead to another file;
// and often it does not: `ip netns exec` gives every command a mount namespace of its own in which nearly all is as outside.
import { closeSync, lstatSync, openSync, readFileSync, readlinkSync, statSync, type Stats } from "node:fs";
import { dirname } from "node:path";
import type { NetConf } from "./net-conf.ts";
import { MTU_FILE } from "./node-files.ts";

/** Which file is at the path: device and inode. */
export function identityOf(path: string): string | undefined {
  try {
    return identity(statSync(path));
  } catch {
    return undefined;
  }
}

const identity = ({ dev, ino }: Stats): string => `${dev}:${ino}`;

const MOST_LINKS = 40; // the kernel's own limit

/**
 * Which file a process finds there. Links are followed by hand: the kernel follows one that begins at the root from our
 * root, also on the way through `/proc/PID/root`.
 */
export function identityFor(pid: number, path: string): string | undefined {
  const root = `/proc/${pid}/root`;
  let from = path.startsWith("/") ? root : `/proc/${pid}/cwd`;
  const left = path.split("/");
  try {
    for (let links = 0; ; ) {
      const step = left.shift();
      if (step === undefined) return identity(statSync(from));
      if (step === "" || step === "." || (step === ".." && from === root)) continue;
      const here = `${from}/${step}`;
      if (step === ".." || !lstatSync(here).isSymbolicLink()) {
        from = here;
        continue;
      }
      if (++links > MOST_LINKS) return undefined;
      const target = readlinkSync(here);
      if (target.startsWith("/")) from = root;
      left.unshift(...target.split("/"));
    }
  } catch {
    return undefined;
  }
}

/**
 * By which mount a process reaches its root: all who have the same see the same everywhere. Of two that have the same folder
 * by different mounts (`mount --bind / ROOT`, then chroot) each sees what is mounted below its own.
 */
export function rootMountOf(pid: number | "self"): string | undefined {
  try {
    const fd = openSync(`/proc/${pid}/root`, "r");
    try {
      return /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined; // it is gone
  }
}

/**
 * Whether /proc shows the processes by the numbers we know them by. In a PID namespace that has none of its own (`unshare
 * --pid` alone) our numbers are there those of others.
 */
export function seesProcesses(): boolean {
  try {
    return readlinkSync("/proc/self") === String(process.pid);
  } catch {
    return false;
  }
}

/** By which names are found. */
const RESOLVER = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"];

/**
 * Whether a process finds everything a call depends on where we do.
 * @param access the files by which the datastore is reached
 */
export function seesTheSame(pid: number, conf: NetConf, access: readonly string[]): boolean {
  const { filePath } = conf.log;
  const made = [conf.ipamLockFile, conf.endpointStatusDir, ...access, ...(filePath === "" ? [] : [filePath])];
  // What is not there yet is made in its folder.
  const files = [conf.nodenameFile, MTU_FILE, ...RESOLVER, ...made, ...made.map((file) => dirname(file))];
  return [...new Set(files)].every((file) => file.startsWith("/") && identityFor(pid, file) === identityOf(file));
}
