// Reads the mount table of a mount namespace (proc_pid_mountinfo(5)).
import { readFileSync } from "node:fs";

export interface Mount {
  /** The directory or file of the mounted file system that is visible at `mountPoint`. */
  readonly root: string;
  readonly mountPoint: string;
  /** File system type, such as `cgroup2`. */
  readonly type: string;
}

/** Returns the mounts of this process's mount namespace, in mount order. */
export const readMounts = (): readonly Mount[] => parseMountinfo(readFileSync("/proc/self/mountinfo", "utf8"));

export function parseMountinfo(text: string): readonly Mount[] {
  return text.split("\n").flatMap((line) => {
    const [left = "", right = ""] = line.split(" - ");
    const [, , , root, mountPoint] = left.split(" ");
    if (root === undefined || mountPoint === undefined) return [];
    return [{ root: unescape(root), mountPoint: unescape(mountPoint), type: right.split(" ")[0] ?? "" }];
  });
}

/** The kernel writes space, tab, newline and backslash as `\040`, `\011`, `\012` and `\134`. */
const unescape = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
