// Runs the calicoctl command that the command line names, and converts its result to an exit code.
import { basename } from "node:path";
import { type CommandIo, processIo } from "../lib/command-line/io.ts";
import { runCommandLine as runTable } from "../lib/command-line/run.ts";
import { Failure } from "./command-line/failure.ts";
import { ROOT } from "./table/index.ts";

/** @param program the program as the user typed it, if it differs from the name of its file */
export function main(argv: readonly string[], program = programName(process.argv0)): Promise<number> {
  return runCommandLine(program, argv, processIo());
}

/** Returns the name for messages. kubectl runs a plugin by its file name, so any `kubectl-*` name is the kubectl plugin. */
export function programName(argv0: string): string {
  return basename(argv0).startsWith("kubectl-") ? "kubectl-calico" : "calicoctl";
}

export async function runCommandLine(program: string, argv: readonly string[], io: CommandIo): Promise<number> {
  try {
    return await runTable({ program, root: ROOT, argv, io });
  } catch (error) {
    if (!(error instanceof Failure)) {
      io.err(`${error instanceof Error ? error.message : String(error)}\n`);
      return 1;
    }
    const text = `${error.message}\n`;
    if (error.stream === "out") io.out(text);
    else io.err(text);
    return error.exitCode;
  }
}
