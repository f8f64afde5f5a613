// Starts the CNI service as a process in a test host.
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CniHost, DIST } from "./cni-host.ts";

/**
 * @param under a command that starts the service, such as strace
 * @param dist folder of the executables, if not those of this checkout
 */
export function startService(host: CniHost, socket: string, under: readonly string[] = [], dist = DIST) {
  const [file = "", ...args] = [...under, join(dist, "calico"), "cni-service", "--socket", socket];
  const child = host.start(file, args, {
    PATH: process.env["PATH"],
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: host.sqlitePath,
  });
  let log = "";
  child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  return { child, log: () => log, ready: eventually(() => log.includes("listens")) };
}
