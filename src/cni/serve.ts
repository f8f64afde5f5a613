// `calico cni-service`: the CNI service without the node agent, for tests and benchmarks.
import { writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { chooseDatastore, configFromEnvironment, openDatastore } from "../datastore/index.ts";
import { allowManyAsides } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { aborted } from "../lib/retry.ts";
import { screenLogger } from "../lib/screen-log.ts";
import { startCniService, withServiceRates } from "./service.ts";
import { SERVICE_SOCKET } from "./service-client.ts";

const USAGE = `calico cni-service [--socket PATH]
  answers CNI plugins on PATH (${SERVICE_SOCKET})
`;

export async function main(argv: readonly string[]): Promise<number> {
  allowManyAsides();
  let values: { readonly socket?: string; readonly help?: boolean };
  try {
    ({ values } = parseArgs({
      args: [...argv],
      options: { socket: { type: "string" }, help: { type: "boolean", short: "h" } },
    }));
  } catch {
    writeSync(2, USAGE);
    return 2;
  }
  if (values.help === true) {
    writeSync(1, USAGE);
    return 0;
  }
  const log = screenLogger("info");
  try {
    await serve(values.socket ?? SERVICE_SOCKET, log);
    return 0;
  } catch (error) {
    log.error("The CNI service cannot run", { error: describeError(error) });
    return 1;
  }
}

async function serve(path: string, log: Logger): Promise<void> {
  const config = chooseDatastore(configFromEnvironment(process.env), { env: process.env });
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort());
  const store = await openDatastore(withServiceRates(config), { mustExist: true, log, retryUntil: stop.signal });
  await using _service = startCniService({ store, datastore: config, log, path });
  log.info("The CNI service listens", { path, datastore: store.name });
  await aborted(stop.signal);
}
