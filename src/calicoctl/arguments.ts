// From the words of the command line to a command and its flags. Flags of the program itself (`--context`,
// `--log-level`, …) may stand before or after the command's name.
import { type ParseArgsOptionDescriptor, parseArgs } from "node:util";
import { type Command, type Flag, type Flags, type Group, isGroup } from "./command.ts";
import { UnknownFlag, UsageFailure } from "./failure.ts";

export const GLOBAL_FLAGS: readonly Flag[] = [
  { name: "help", short: "h", about: "show this text" },
  {
    name: "log-level",
    short: "l",
    value: "LEVEL",
    about: "panic (default), fatal, error, warn, info or debug: log to standard error from this level on",
  },
  { name: "context", value: "CONTEXT", about: "context of the kubeconfig to use" },
  {
    name: "allow-version-mismatch",
    about: "go on although this program and the cluster have different versions",
  },
];

export type Parsed =
  | { readonly type: "command"; readonly path: readonly string[]; readonly command: Command; readonly rest: string[] }
  /** No command, or one that the group does not have. */
  | {
      readonly type: "group";
      readonly path: readonly string[];
      readonly group: Group;
      readonly rest: string[];
      readonly unknown?: string;
    };

/** Finds the command; what remains is for `parseFlags`. */
export function findCommand(root: Group, argv: readonly string[]): Parsed {
  const rest: string[] = [];
  const path: string[] = [];
  let group = root;
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? "";
    if (word.startsWith("-") && word !== "-") {
      rest.push(word);
      // The value of a global flag is no command.
      if ((takesNextWord(word) || /^(-c|--config)$/.test(word)) && i + 1 < argv.length) rest.push(argv[++i] ?? "");
      continue;
    }
    const next = group.commands.find((entry) => entry.name === word);
    if (next === undefined) return { type: "group", path, group, rest, unknown: word };
    path.push(word);
    if (!isGroup(next)) return { type: "command", path, command: next, rest: [...rest, ...argv.slice(i + 1)] };
    group = next;
  }
  return { type: "group", path, group, rest };
}

function takesNextWord(word: string): boolean {
  return GLOBAL_FLAGS.some(
    (flag) => flag.value !== undefined && (word === `--${flag.name}` || word === `-${flag.short ?? "-"}`),
  );
}

/** @throws UsageFailure naming the word that does not fit */
export function parseFlags(
  command: Pick<Command, "flags" | "words">,
  words: readonly string[],
): { words: readonly string[]; flags: Flags } {
  const known = [...command.flags, ...GLOBAL_FLAGS.filter((flag) => !command.flags.some((f) => f.name === flag.name))];
  const options: Record<string, ParseArgsOptionDescriptor> = {};
  for (const flag of known)
    options[flag.name] = {
      type: flag.value === undefined ? "boolean" : "string",
      multiple: true,
      ...(flag.short === undefined ? {} : { short: flag.short }),
    };
  let values: Record<string, (string | boolean)[] | undefined>;
  let positionals: string[];
  try {
    const parsed = parseArgs({
      args: words.map((word) => inFull(word, known)),
      options,
      allowPositionals: true,
      strict: true,
    });
    values = parsed.values as Record<string, (string | boolean)[] | undefined>;
    positionals = parsed.positionals;
  } catch (error) {
    const [, unknown] = /Unknown option '([^']+)'/.exec(error instanceof Error ? error.message : "") ?? [];
    if (unknown !== undefined) {
      const names = known.filter(({ hidden }) => hidden !== true).map(({ name }) => name);
      throw new UnknownFlag(unknown, names, { cause: error });
    }
    throw new UsageFailure(plainReason(error), { cause: error });
  }
  for (const flag of known) {
    const given = values[flag.name];
    if (given === undefined) continue;
    if (flag.means !== undefined) values[flag.means] ??= given;
    if (given.length > 1 && flag.value !== undefined && flag.repeatable !== true)
      throw new UsageFailure(`--${flag.name} is given ${given.length} times, once is enough`);
  }
  const asked = values["help"] !== undefined;
  if (!asked && positionals.length < command.words.least) throw new UsageFailure("too few arguments");
  if (!asked && positionals.length > command.words.most)
    throw new UsageFailure(`unexpected argument ${JSON.stringify(positionals[command.words.most])}`);
  const texts = (name: string) => (values[name] ?? []).filter((value) => typeof value === "string");
  return {
    words: positionals,
    flags: {
      has: (name) => values[name] !== undefined,
      value: (name) => texts(name).at(-1),
      values: texts,
    },
  };
}

/** A long flag may be cut short as long as only one can be meant; a short one may have `=` before its value. */
function inFull(word: string, known: readonly Flag[]): string {
  const [, letter, value] = /^-([A-Za-z])=([\s\S]*)$/.exec(word) ?? [];
  if (known.some((flag) => flag.short !== undefined && flag.short === letter && flag.value !== undefined))
    return `-${letter}${value}`;
  const [, start = "", rest = ""] = /^--([a-z][a-z-]*)(=[\s\S]*)?$/.exec(word) ?? [];
  if (start === "" || known.some((flag) => flag.name === start)) return word;
  const meant = known.filter((flag) => flag.name.startsWith(start) && flag.hidden !== true);
  return meant.length === 1 ? `--${meant[0]?.name}${rest}` : word;
}

/** The parser's sentence without its advice about `--`, which nobody needs here. */
function plainReason(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const missing = /Option '(?:-\w, )?([^ ']+)[^']*' argument (?:missing|is ambiguous)/.exec(text);
  if (missing !== null) return `flag needs a value: ${missing[1] ?? ""}`;
  return text.split("\n")[0] ?? text;
}
