// Implements `calico cni-service`: runs the CNI service without the node agent, for tests and benchmarks.
import { chooseDatastore, configFromEnvironment, openDatastore } from "../../datastore/index.ts";
import { enlargeThreadPool } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { aborted } from "../../lib/retry.ts";
import { stderrLogger } from "../../lib/log/stderr-log.ts";
import { SERVICE_SOCKET } from "./client.ts";
import { startCniService, withServiceRates } from "./service.ts";
import type { Call } from "../../lib/command-line/command.ts";
import type { serviceGrammar } from "../table.ts";

export async function run({ flags }: Call<typeof serviceGrammar>): Promise<number> {
  enlargeThreadPool();
  const log = stderrLogger("info");
  try {
    await serve(flags.socket ?? SERVICE_SOCKET, log);
    return 0;
  } catch (error) {
    log.error("cannot run the CNI service", { error: describeError(error) });
    return 1;
  }
}

async function serve(path: string, log: Logger): Promise<void> {
  const config = chooseDatastore(configFromEnvironment(process.env), { env: process.env });
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort());
  const store = await openDatastore(withServiceRates(config), { mustExist: true, log, retryUntil: stop.signal });
  await using _service = startCniService({ store, datastore: config, log, path });
  log.info("the CNI service listens", { path, datastore: store.name });
  await aborted(stop.signal);
}
