// Implements the settings that make Felix hang or crash on purpose, to test its watchdogs and supervisor.
import type { Logger } from "../lib/log/log.ts";
import type { FelixConfig } from "../model/index.ts";
import type { RunningDriver } from "./drivers/driver.ts";
import type { GraphRunner } from "./graph-runner.ts";

export function armDebugSwitches(options: {
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
  const { config, runner, driver, log, signal } = options;
  const after = (seconds: number, effect: string, action: () => void) => {
    if (seconds <= 0) return;
    log.warn("debug setting is active", { effect, afterSeconds: seconds });
    const timer = setTimeout(action, seconds * 1000);
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  };
  after(config.DebugSimulateCalcGraphHangAfter, "the calculation hangs", () => runner.hang());
  after(config.DebugSimulateDataplaneHangAfter, "the dataplane hangs", () => driver.hang?.());
  after(config.DebugPanicAfter, "Felix exits", options.panic);
}
