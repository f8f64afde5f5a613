// `calico cni-service`: the node-local service alone, for hosts without the node agent and for measuring.
import { writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { chooseDatastore, configFromEnvironment, openDatastore } from "../datastore/index.ts";
import { screenLogger } from "../lib/screen-log.ts";
import { SERVICE_SOCKET, startCniService, withServiceRates } from "./service.ts";

export async function main(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({ args: [...argv], options: { socket: { type: "string" }, help: { type: "boolean" } } });
  if (values.help === true) {
    writeSync(1, `calico cni-service [--socket PATH]\n  answers CNI plugins on PATH (${SERVICE_SOCKET})\n`);
    return 0;
  }
  const log = screenLogger("info");
  const path = values.socket ?? SERVICE_SOCKET;
  const config = chooseDatastore(configFromEnvironment(process.env), { env: process.env });
  const store = await openDatastore(withServiceRates(config));
  await using _service = startCniService({ store, log, path });
  log.info("The CNI service listens", { path, datastore: store.name });
  await new Promise<void>((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
  });
  return 0;
}
