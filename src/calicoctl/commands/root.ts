// Runs calicoctl without a command: prints the help text or, for --version, the name of the command that prints versions.
import { helpText, helpWidth } from "../../lib/command-line/help.ts";
import { type Call, GLOBAL_FLAGS } from "../table/flags.ts";
import { ROOT, type rootGrammar } from "../table/index.ts";

export function run({ flags, io, commandName }: Call<typeof rootGrammar>): number {
  const shown = { command: ROOT, commandName, globalFlags: GLOBAL_FLAGS, style: "docopt" } as const;
  io.out(
    flags.version
      ? `Run '${commandName} version' to see version information.\n`
      : helpText(shown, helpWidth(io.columns?.())),
  );
  return 0;
}
