// Reads and writes sysctls, the kernel settings under /proc/sys (proc_sys(5)). Which network namespace a sysctl below
// net/ belongs to is decided when its file is opened. Each pod interface has half a dozen of them, so this file uses plain
// system calls instead of `node:fs`.
import { openInNamespace, type NamespaceHandle } from "./namespace.ts";
import { checkSyscall } from "./kernel-error.ts";
import * as sys from "./sys.ts";

/** The parts of the path. Not the dotted form, which is ambiguous because interface names may contain dots. */
export type SysctlPath = readonly [string, ...string[]];

export interface Sysctls {
  /** Without the newline. */
  read(path: SysctlPath): string;
  write(path: SysctlPath, value: string | number): void;
}

/** The sysctls of the calling thread's network namespace. */
export const procSysctls = createSysctls((file, flags) =>
  flags === O_WRONLY ? sys.openWriteOnly(file) : sys.openReadOnly(file),
);

/** The sysctls of another network namespace. */
export const sysctlsIn = (namespace: NamespaceHandle): Sysctls =>
  createSysctls((file, flags) => openInNamespace(namespace, { kind: "file", path: sys.cString(file), flags }));

const O_RDONLY = 0;
const O_WRONLY = 1;
/** A sysctl is never longer than one page. */
const buffer = sys.allocate(4096);

/** @param open returns a file descriptor, or minus the errno */
function createSysctls(open: (file: string, flags: number) => number): Sysctls {
  return {
    read(path) {
      const length = access("read", path, open(sysctlFile(path), O_RDONLY), (fd) => sys.read(fd, buffer));
      return new TextDecoder().decode(buffer.subarray(0, length)).trimEnd();
    },
    write(path, value) {
      const bytes = new TextEncoder().encode(String(value)) as sys.Bytes;
      access(`write ${value} to`, path, open(sysctlFile(path), O_WRONLY), (fd) => sys.write(fd, bytes));
    },
  };
}

/**
 * Calls `use` with the open file and closes it.
 * @param fd minus the errno if opening failed
 * @param use returns the number of bytes, or minus the errno
 */
function access(verb: string, path: SysctlPath, fd: number, use: (fd: number) => number): number {
  const result = fd < 0 ? fd : use(fd);
  if (fd >= 0) sys.close(fd);
  return checkSyscall(result, `${verb} sysctl ${path.join("/")}`);
}

/** Writes the sysctl only if its value differs, so that a restart writes nothing. */
export function setSysctl(sysctls: Sysctls, path: SysctlPath, value: string | number): void {
  if (readIfPossible(sysctls, path) !== String(value)) sysctls.write(path, value);
}

/** Undefined if it cannot be read; the write that follows then reports the error. */
function readIfPossible(sysctls: Sysctls, path: SysctlPath): string | undefined {
  try {
    return sysctls.read(path);
  } catch {
    return undefined;
  }
}

function sysctlFile(path: SysctlPath): string {
  for (const part of path)
    if (part === "" || part === "." || part === ".." || /[/\0]/.test(part))
      throw new RangeError(`${JSON.stringify(part)} is not a valid part of a sysctl path`);
  return `/proc/sys/${path.join("/")}`;
}
