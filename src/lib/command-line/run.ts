// Runs the command that a command line names, or answers with its help text or a usage error.
import type { Command } from "./command.ts";
import { type CommandIo, processIo } from "./io.ts";
import { parse, type Parsed } from "./parse.ts";
import { UnknownWordError, UsageError } from "./usage-error.ts";

/** Exit code of every program for a command line that does not fit its grammar. */
const USAGE_EXIT_CODE = 2;

export interface CommandLine {
  /** The program as the user typed it: `calicoctl`, `calico lab`. */
  readonly program: string;
  readonly root: Command;
  readonly argv: readonly string[];
  readonly io: CommandIo;
}

/**
 * The main function of a program that needs nothing but its table.
 * Its second argument is the program as the user typed it, if not by the name of the table.
 */
export const programMain =
  (root: Command) =>
  (argv: readonly string[], program: string = root.name): Promise<number> =>
    runCommandLine({ program, root, argv, io: processIo() });

/** Returns the exit code. Errors other than wrong usage are passed on. */
export async function runCommandLine({ program, root, argv, io }: CommandLine): Promise<number> {
  const parsed = parse(root, argv);
  const commandName = [program, ...parsed.path].join(" ");
  if (parsed.type === "help") {
    const { helpText, helpWidth } = await import("./help.ts");
    io.out(helpText({ ...parsed, commandName }, helpWidth(io.columns?.())));
    return 0;
  }
  try {
    if (parsed.type === "error") throw parsed.error;
    const { run } = await parsed.load();
    // The table entry was compared with the type of `run` where it was declared (`commandsWith` of command.ts).
    return await run({ commandName, io, ...parsed.values } as never);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    io.err(await usageErrorText(error, parsed, commandName, io));
    return USAGE_EXIT_CODE;
  }
}

async function usageErrorText(error: UsageError, parsed: Parsed, commandName: string, io: CommandIo): Promise<string> {
  const { helpWidth, usageLines } = await import("./help.ts");
  const isGroup = parsed.command.commands !== undefined;
  return [
    `${commandName}: ${error.message}\n`,
    error.hint === undefined ? "" : `${error.hint}\n`,
    error instanceof UnknownWordError ? "" : usageLines({ ...parsed, commandName }, helpWidth(io.columns?.())),
    `Run "${commandName} --help" for ${isGroup ? "the list of commands" : "its arguments and flags"}.\n`,
  ].join("");
}
