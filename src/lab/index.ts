// Implements `calico lab`: runs the requested command and converts its result to an exit code.
import { processIo } from "../lib/command-line/io.ts";
import { runCommandLine } from "../lib/command-line/run.ts";
import { describeError } from "../lib/log/log.ts";
import { delay } from "../lib/retry.ts";
import { InvalidRequest } from "./options.ts";
import { LAB } from "./table.ts";

export async function main(argv: readonly string[]): Promise<number> {
  const io = processIo();
  try {
    return await runCommandLine({ program: "calico lab", root: LAB, argv, io });
  } catch (error) {
    await delay(10); // an interrupt that made a program fail is reported first
    io.err(`calico lab: ${describeError(error)}\n`);
    return error instanceof InvalidRequest ? 2 : 1;
  }
}
