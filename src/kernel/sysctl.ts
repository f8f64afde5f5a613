// Kernel settings under /proc/sys. A setting of the network belongs to the namespace of the calling thread. There are half
// a dozen for each interface, so they are read and written without detours.
import { errnoName } from "./errno.ts";
import { openIn, type Place } from "./namespace.ts";
import { SyscallError } from "./netlink-error.ts";
import * as sys from "./sys.ts";

/** Path of a setting from its parts: interface names may hold dots, so the dotted form would be ambiguous. */
export type SysctlPath = readonly [string, ...string[]];

export interface Sysctls {
  /** Without the newline. */
  read(path: SysctlPath): string;
  write(path: SysctlPath, value: string | number): void;
}

/** Those of another namespace: whose a setting is is decided when its file is opened. */
export const sysctlsIn = (namespace: Place): Sysctls =>
  sysctlsBy((file, flags) => openIn(namespace, { kind: "file", path: sys.cString(file), flags }));

type Open = (file: string, flags: number) => number;
const WRITE_ONLY = 1;

function sysctlsBy(open: Open): Sysctls {
  return {
    read: (path) =>
      withFile(
        "read",
        path,
        (file) => open(file, 0),
        (fd) => {
          const length = sys.read(fd, buffer);
          return length < 0 ? length : new TextDecoder().decode(buffer.subarray(0, length)).trimEnd();
        },
      ),
    write(path, value) {
      const bytes = new TextEncoder().encode(String(value)) as sys.Bytes;
      withFile(
        `write ${value} to`,
        path,
        (file) => open(file, WRITE_ONLY),
        (fd) => {
          const length = sys.write(fd, bytes);
          return length < 0 ? length : "";
        },
      );
    },
  };
}

export const procSysctls = sysctlsBy((file, flags) => (flags === 0 ? sys.openReadOnly : sys.openWriteOnly)(file));
/** One page is all a setting can be. */
const buffer = sys.allocate(4096);

/** What was read, unless opening or using the file gave minus an errno. */
function withFile(
  verb: string,
  path: SysctlPath,
  open: (file: string) => number,
  use: (fd: number) => string | number,
): string {
  const fd = open(sysctlFile(path));
  const result = fd < 0 ? fd : use(fd);
  if (fd >= 0) sys.close(fd);
  if (typeof result === "string") return result;
  throw new SyscallError(`${verb} kernel setting ${path.join("/")}`, errnoName(-result));
}

/** Writes a setting that has another value; one that is right is left alone, also by the next start. */
export function setSysctl(sysctls: Sysctls, path: SysctlPath, value: string | number): void {
  if (currentOf(sysctls, path) !== String(value)) sysctls.write(path, value);
}

/** Nothing when it cannot be read: then writing tells why. */
function currentOf(sysctls: Sysctls, path: SysctlPath): string | undefined {
  try {
    return sysctls.read(path);
  } catch {
    return undefined;
  }
}

function sysctlFile(path: SysctlPath): string {
  for (const part of path)
    if (part === "" || part === "." || part === ".." || /[/\0]/.test(part))
      throw new RangeError(`${JSON.stringify(part)} is no part of a kernel setting's name`);
  return `/proc/sys/${path.join("/")}`;
}
