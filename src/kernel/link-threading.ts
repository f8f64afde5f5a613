// Whether a device's packets are handled by a kernel thread of their own. https://docs.kernel.org/networking/napi.html#threaded-napi
import { readFileSync, writeFileSync } from "node:fs";
import { isLinkName } from "./links.ts";
import { SyscallError } from "./netlink-error.ts";

/** The link is looked for in the namespace this process's /sys was mounted in. */
export function setThreaded(link: string, on: boolean): void {
  const what = `set threads of ${link}`;
  if (!isLinkName(link)) throw new SyscallError(what, "EINVAL");
  const path = `/sys/class/net/${link}/threaded`;
  const value = on ? "1" : "0";
  try {
    if (readFileSync(path, "utf8").trim() !== value) writeFileSync(path, value, { flag: "r+" });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    throw new SyscallError(what, code, { cause: error });
  }
}
