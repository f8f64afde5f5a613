// Settings that make the agent misbehave on purpose, for tests of what watches it.
import type { Logger } from "../lib/log.ts";
import type { FelixConfig } from "./config/index.ts";
import type { RunningDriver } from "./drivers/driver.ts";
import type { GraphRunner } from "./graph-runner.ts";

export function armDebugSwitches(given: {
  readonly config: Pick<
    FelixConfig,
    "DebugSimulateCalcGraphHangAfter" | "DebugSimulateDataplaneHangAfter" | "DebugPanicAfter"
  >;
  readonly runner: Pick<GraphRunner, "hang">;
  readonly driver: Pick<RunningDriver, "hang">;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly panic: () => void;
}): void {
  const { config, runner, driver, log, signal } = given;
  const after = (seconds: number, what: string, happen: () => void) => {
    if (seconds <= 0) return;
    log.warn("armed for a test", { what, seconds });
    const timer = setTimeout(happen, seconds * 1000);
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  };
  after(config.DebugSimulateCalcGraphHangAfter, "the calculation hangs", () => runner.hang());
  after(config.DebugSimulateDataplaneHangAfter, "the dataplane hangs", () => driver.hang?.());
  after(config.DebugPanicAfter, "the agent dies", given.panic);
}
