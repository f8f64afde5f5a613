// `check-status -r | -l [-f FILE]`: says for a probe whether the controllers are ready.
import { parseArgs } from "node:util";
import { BUILD } from "../lib/build.ts";
import { readReadings, STATUS_FILE } from "./health.ts";

const USAGE = "Usage: check-status -r|-l [-f FILE] | -v";

export function main(argv: readonly string[]): number {
  if (argv[0] === "-h" || argv[0] === "--help") {
    console.log(
      `${USAGE}\n  -r        ready?\n  -l        alive? the same answer\n  -f FILE   the status file; ${STATUS_FILE}\n  -v        the version`,
    );
    return 0;
  }
  let values: { r?: boolean; l?: boolean; v?: boolean; f?: string };
  try {
    ({ values } = parseArgs({
      args: argv.map((word) =>
        /^-[rlvf]$/.test(word) || word.startsWith("--") ? word : word.replace(/^-(?=[rlvf]=)/, "--"),
      ),
      options: {
        r: { type: "boolean", short: "r" },
        l: { type: "boolean", short: "l" },
        v: { type: "boolean", short: "v" },
        f: { type: "string", short: "f" },
      },
    }));
  } catch (error) {
    console.error(`check-status: ${(error as Error).message}\n${USAGE}`);
    return 1;
  }
  if (values.v === true) {
    console.log(BUILD.version);
    return 0;
  }
  if (values.r !== true && values.l !== true) {
    console.error(USAGE);
    return 1;
  }
  return report(values.f ?? STATUS_FILE);
}

/** Both questions have one answer: a program that cannot do its work is to be started again. */
function report(file: string): number {
  let reasons: readonly string[];
  try {
    reasons = readReadings(file);
  } catch (error) {
    console.log(`cannot read ${file}: ${(error as Error).message}`);
    return 1;
  }
  console.log(reasons.length === 0 ? "Ready" : reasons.join("; "));
  return reasons.length === 0 ? 0 : 1;
}
