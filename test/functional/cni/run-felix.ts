// Runs the real Felix on a host of the CNI tests, with the host's SQLite datastore.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CniHost, collect, DIST } from "./cni-host.ts";

/** @returns a function that kills Felix */
export async function runFelix(host: CniHost, env: Readonly<Record<string, string>>): Promise<() => Promise<void>> {
  const isReady = join(host.folder, "run/endpoint-status");
  const felix = host.start(join(DIST, "calico-felix"), [], {
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: host.sqlitePath,
    FELIX_FELIXHOSTNAME: "n1",
    FELIX_LOGFILEPATH: "none",
    FELIX_LOGSEVERITYSYS: "none",
    FELIX_LOGSEVERITYSCREEN: "warning",
    ...env,
  });
  const ended = collect(felix);
  // Felix creates the folder after its first complete apply.
  await Promise.race([
    eventually(() => existsSync(isReady), 30_000, "Felix ready"),
    ended.then(({ stderr }) => Promise.reject(new Error(`Felix ended:\n${stderr}`))),
  ]);
  return async () => {
    felix.kill("SIGKILL");
    await ended;
  };
}
