// Reads the files that the node agent writes for the plugin: the node's name, and the MTU that the encapsulation allows.
import { readFileSync, statSync } from "node:fs";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { NetConf } from "./net-conf.ts";

const MTU_FILE = "/var/lib/calico/mtu";
export const NODENAME_FILE = "/var/lib/calico/nodename";

/** Without this file the node agent has not started yet, and a pod would get no policy. */
export function checkNodenameFile(conf: NetConf): void {
  if (conf.nodenameFileOptional) return;
  try {
    statSync(conf.nodenameFile);
  } catch (error) {
    throw new CniError(
      INTERNAL,
      `stat ${conf.nodenameFile}: ${reason(error)}: check that the calico/node container is running and has mounted /var/lib/calico/`,
    );
  }
}

/** Returns the configured node name, or that in the file, or the configured host name, or the kernel's host name. */
export function nodeName(conf: NetConf): string {
  if (conf.nodename !== "") return conf.nodename;
  const fromFile = readFileIfExists(conf.nodenameFile);
  if (fromFile !== undefined && fromFile !== "") return fromFile;
  if (conf.hostname !== "") return conf.hostname;
  return readFileSync("/proc/sys/kernel/hostname", "utf8").trim().toLowerCase();
}

/** Returns 0 if neither the configuration nor the file sets an MTU. */
export function linkMtu(conf: NetConf, file = MTU_FILE): number {
  const text = readFileIfExists(file);
  if (text === undefined) {
    if (conf.requireMtuFile)
      throw new CniError(INTERNAL, `${file} is missing and require_mtu_file is set: is the node agent running?`);
    return conf.mtu;
  }
  // Validated even if it is not used, because invalid content shows that something is wrong with this node.
  const trimmed = text.trim();
  if (!/^\+?\d+$/.test(trimmed))
    throw new CniError(
      INTERNAL,
      `${file}: ${JSON.stringify(trimmed.slice(0, 40))} is not an MTU; want a number like 1450`,
    );
  return conf.mtu !== 0 ? conf.mtu : Number(trimmed);
}

function reason(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return code === "ENOENT" ? "no such file or directory" : code;
}
