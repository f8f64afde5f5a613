// calico-node -startup
import { describeError } from "../lib/log.ts";
import { nodeLogger } from "./log.ts";
import { startUp } from "./startup.ts";

export async function main(): Promise<number> {
  const log = nodeLogger(process.env["CALICO_STARTUP_LOGLEVEL"]);
  try {
    await startUp(process.env, log);
    return 0;
  } catch (error) {
    log.error("startup failed", { error: describeError(error) });
    return 1;
  }
}
