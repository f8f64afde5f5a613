// Runs another program with the terminal of this one.
import { spawnSync } from "node:child_process";
import { constants } from "node:os";

/** Interrupts go to the program. Returns its exit code. */
export function runAttached(command: readonly [string, ...string[]], environment: Record<string, string>): number {
  process.on("SIGINT", () => {});
  const [file, ...args] = command;
  const { status, signal } = spawnSync(file, args, { stdio: "inherit", env: environment });
  return status ?? (signal === null ? 1 : 128 + constants.signals[signal]);
}
