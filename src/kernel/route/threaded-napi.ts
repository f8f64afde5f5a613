// Sets threaded NAPI: whether a kernel thread of its own processes a device's packets.
// https://docs.kernel.org/networking/napi.html#threaded-napi
import { readFileSync, writeFileSync } from "node:fs";
import { isLinkName } from "./links.ts";
import { SyscallError } from "../sys/kernel-error.ts";

/** Applies to the link in the network namespace in which this process's /sys was mounted. */
export function setThreadedNapi(link: string, on: boolean): void {
  const operation = `set threaded NAPI of link ${link}`;
  if (!isLinkName(link)) throw new SyscallError(operation, "EINVAL");
  const path = `/sys/class/net/${link}/threaded`;
  const value = on ? "1" : "0";
  try {
    if (readFileSync(path, "utf8").trim() !== value) writeFileSync(path, value, { flag: "r+" });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    throw new SyscallError(operation, code, { cause: error });
  }
}
