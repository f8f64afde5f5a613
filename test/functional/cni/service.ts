// The node-local service as a process of a test's host.
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CniHost, DIST } from "./cni-host.ts";

/**
 * @param under the program that starts it, if another shall
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
