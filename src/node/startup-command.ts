// calico-node -startup [-complete-startup]
import { runMode } from "./mode.ts";
import { readSettings } from "./settings.ts";
import { startUp } from "./startup.ts";

/** With `-complete-startup` beside it, the network counts as up as soon as this is done. */
export function main(argv: readonly string[]): Promise<number> {
  return runMode("startup failed", async (log) => {
    const name = await startUp(process.env, log);
    if (argv.some((word) => /^--?complete-startup$/.test(word))) {
      const { sayUp } = await import("./network-condition.ts");
      await sayUp(readSettings(process.env), name, log, new AbortController().signal);
    }
  });
}
