// Runs another program in the place of this one.
import { spawnSync } from "node:child_process";
import { constants } from "node:os";

/** The program has the terminal of this one, and receives its interrupts. Returns the exit code. */
export function become(command: readonly [string, ...string[]], environment: Record<string, string>): number {
  process.on("SIGINT", () => {});
  const [file, ...args] = command;
  const { status, signal } = spawnSync(file, args, { stdio: "inherit", env: environment });
  return status ?? (signal === null ? 1 : 128 + constants.signals[signal]);
}
