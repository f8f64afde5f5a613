// Kernel settings under /proc/sys. A setting of the network belongs to the namespace of the calling thread.
import { readFileSync, writeFileSync } from "node:fs";
import { SyscallError } from "./netlink-error.ts";

/** Path of a setting from its parts: interface names may hold dots, so the dotted form would be ambiguous. */
export type SysctlPath = readonly [string, ...string[]];

export interface Sysctls {
  /** Without the newline. */
  read(path: SysctlPath): string;
  write(path: SysctlPath, value: string | number): void;
}

export const procSysctls: Sysctls = {
  read(path) {
    return attempt("read", path, () => readFileSync(sysctlFile(path), "utf8").trimEnd());
  },
  write(path, value) {
    attempt(`write ${value} to`, path, () => writeFileSync(sysctlFile(path), String(value), { flag: "r+" }));
  },
};

export function sysctlFile(path: SysctlPath): string {
  for (const part of path)
    if (part === "" || part === "." || part === ".." || /[/\0]/.test(part))
      throw new RangeError(`${JSON.stringify(part)} is no part of a kernel setting's name`);
  return `/proc/sys/${path.join("/")}`;
}

function attempt<T>(verb: string, path: SysctlPath, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (error instanceof RangeError) throw error;
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    throw new SyscallError(`${verb} kernel setting ${path.join("/")}`, code, { cause: error });
  }
}
