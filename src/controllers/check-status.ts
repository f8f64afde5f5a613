// check-status: reports to a probe whether the controllers are healthy.
import type { Call } from "../lib/command-line/command.ts";
import type { CommandIo } from "../lib/command-line/io.ts";
import { UsageError } from "../lib/command-line/usage-error.ts";
import { BUILD } from "../lib/process/build.ts";
import { readUnreadyReasons } from "./health-status.ts";
import type { checkStatusGrammar } from "./table.ts";

export function run({ flags, io }: Call<typeof checkStatusGrammar>): number {
  if (flags.v) {
    io.out(`${BUILD.version}\n`);
    return 0;
  }
  if (!flags.r && !flags.l) throw new UsageError("-r or -l is missing");
  return report(flags.f, io);
}

/** Readiness and liveness are the same: a program that cannot do its work must be restarted. */
function report(file: string, io: CommandIo): number {
  let reasons: readonly string[];
  try {
    reasons = readUnreadyReasons(file);
  } catch (error) {
    io.out(`cannot read ${file}: ${(error as Error).message}\n`);
    return 1;
  }
  io.out(`${reasons.length === 0 ? "Ready" : reasons.join("; ")}\n`);
  return reasons.length === 0 ? 0 : 1;
}
