// Determines which file another process finds at a path. In its mount namespace, or below its root directory, the path may
// refer to another file. Often it refers to the same one: `ip netns exec` gives every command a private mount namespace whose
// contents are almost identical to the host's.
import { lstatSync, readlinkSync, statSync, type Stats } from "node:fs";

/** Returns device and inode of the file at the path. */
export function identityOf(path: string): string | undefined {
  try {
    return identity(statSync(path));
  } catch {
    return undefined;
  }
}

const identity = ({ dev, ino }: Stats): string => `${dev}:${ino}`;

const MAX_SYMLINKS = 40; // the kernel's own limit

/**
 * Returns device and inode of the file that a process finds at the path. Symbolic links are followed here, because the kernel
 * resolves an absolute link from the root of the calling process, even below `/proc/PID/root`.
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
      if (++links > MAX_SYMLINKS) return undefined;
      const target = readlinkSync(here);
      if (target.startsWith("/")) from = root;
      left.unshift(...target.split("/"));
    }
  } catch {
    return undefined;
  }
}

/**
 * Returns whether /proc belongs to this process's PID namespace. After `unshare --pid` without a new /proc, the same
 * numbers denote other processes there.
 */
export function seesProcesses(): boolean {
  try {
    return readlinkSync("/proc/self") === String(process.pid);
  } catch {
    return false;
  }
}
