// What all modes of calico-node have in common: a log, and an exit code that says whether it went well.
import { describeError, type Logger } from "../lib/log/log.ts";
import { nodeLogger } from "./log.ts";

/** @param complaint what is said, with the reason, when the work fails */
export async function runMode(
  complaint: string,
  work: (log: Logger) => Promise<void>,
  logLevel = process.env["CALICO_STARTUP_LOGLEVEL"],
): Promise<number> {
  const log = nodeLogger(logLevel);
  try {
    await work(log);
    return 0;
  } catch (error) {
    log.error(complaint, { error: describeError(error) });
    return 1;
  }
}
