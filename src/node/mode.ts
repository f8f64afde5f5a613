// Runs one mode of calico-node with a logger, and converts its result to an exit code.
import { describeError, type Logger } from "../lib/log/log.ts";
import { nodeLogger } from "./log.ts";

/** @param failureMessage logged with the error if the work fails */
export async function runMode(
  failureMessage: string,
  work: (log: Logger) => Promise<void>,
  logLevel = process.env["CALICO_STARTUP_LOGLEVEL"],
): Promise<number> {
  const log = nodeLogger(logLevel);
  try {
    await work(log);
    return 0;
  } catch (error) {
    log.error(failureMessage, { error: describeError(error) });
    return 1;
  }
}
