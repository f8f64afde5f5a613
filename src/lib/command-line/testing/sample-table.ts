// A small program whose table has everything that tables can have.
import { type Command, commandsWith, type FlagTable, type Grammar } from "../command.ts";

export const GLOBAL_FLAGS = {
  level: { type: "text", short: "l", value: "LEVEL", about: "log level", default: "info" },
} as const satisfies FlagTable;
const command = commandsWith(GLOBAL_FLAGS);

export const copyGrammar = {
  flags: {
    recursive: { type: "switch", short: "R", about: "copy folders" },
    keep: { type: "switch", short: "k", hiddenShort: "K", about: "keep times" },
    format: { type: "text", short: "o", value: "FORMAT", values: ["tar", "zip"], about: "format of the copy" },
    retries: { type: "number", value: "N", min: 0, max: 10, default: 3, about: "number of retries" },
    skip: { type: "text", value: "NAME", isRepeatable: true, about: "file to leave out" },
    "skip-links": { type: "switch", about: "leave out symbolic links" },
    old: { type: "switch", isHidden: true, about: "has no effect" },
  },
  arguments: [
    { name: "SOURCE", about: "file to copy" },
    { name: "TARGET", isOptional: true, about: "where the copy goes" },
  ],
} as const satisfies Grammar;

export const execGrammar = {
  arguments: [{ name: "HOST", about: "where to run it" }],
  rest: { name: "COMMAND", about: "what to run", begins: "after --" },
} as const satisfies Grammar;

const passGrammar = {
  flags: { quiet: { type: "switch", short: "q", about: "print less" } },
  rest: { name: "ARGUMENT", about: "passed on", begins: "with the first other word", isOptional: true },
} as const satisfies Grammar;

const killGrammar = {
  arguments: [{ name: "NAME", isRepeatable: true, mayBeginWithDash: true, about: "process to kill" }],
} as const satisfies Grammar;

const run = () => Promise.resolve({ run: () => 0 });

export const SAMPLE: Command = {
  name: "sample",
  about: "Copy files and run programs.",
  globalFlags: GLOBAL_FLAGS,
  commands: [
    command({
      name: "copy",
      about: "Copy a file.",
      details: "A longer text\nof two lines.\n  a list\n  of words",
      ...copyGrammar,
      examples: [{ line: "a b --retries 5", about: "Retry five times." }],
      load: run,
    }),
    command({ name: "exec", about: "Run a program.", ...execGrammar, load: run }),
    command({ name: "pass", about: "Pass everything on.", ...passGrammar, load: run }),
    command({
      name: "host",
      about: "Show this host.",
      extraArgumentHint: (word) => `A host is named with --host ${word}`,
      load: run,
    }),
    {
      name: "process",
      about: "Manage processes.",
      commands: [command({ name: "kill", about: "Kill processes.", ...killGrammar, load: run })],
    },
  ],
};

/** The same copy in the other two styles. */
export const styled = (style: "docopt" | "go"): Command => ({ ...copy(), style });

function copy(): Command {
  const [first] = SAMPLE.commands ?? [];
  if (first === undefined) throw new Error("the sample has no commands");
  return first;
}
