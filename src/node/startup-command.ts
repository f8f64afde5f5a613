// calico-node -startup [-complete-startup]
import { describeError } from "../lib/log.ts";
import { nodeLogger } from "./log.ts";
import { readSettings } from "./settings.ts";
import { startUp } from "./startup.ts";

/** With `-complete-startup` beside it, the network counts as up as soon as this is done. */
export async function main(argv: readonly string[]): Promise<number> {
  const log = nodeLogger(process.env["CALICO_STARTUP_LOGLEVEL"]);
  try {
    const name = await startUp(process.env, log);
    if (argv.some((word) => /^--?complete-startup$/.test(word))) {
      const { sayUp } = await import("./network-condition.ts");
      await sayUp(readSettings(process.env), name, log, new AbortController().signal);
    }
    return 0;
  } catch (error) {
    log.error("startup failed", { error: describeError(error) });
    return 1;
  }
}
