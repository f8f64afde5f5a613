// Parses the words of a command line with the table of a program.
//
// A flag may stand anywhere after the name of the program, also before the name of its command. `-h`, `--help` and the
// word `help` request the help text of the deepest command that is named, whatever else is on the line.
import {
  type Argument,
  type Command,
  dashes,
  type Flag,
  type FlagStyle,
  type FlagTable,
  type Grammar,
} from "./command.ts";
import { extraArgument, unknownCommand, unknownFlag } from "./suggest.ts";
import { UsageError } from "./usage-error.ts";

export type Parsed = {
  readonly command: Command;
  /** Names of the commands from the one below the program to `command`. */
  readonly path: readonly string[];
  /** Flags of the commands above, which this one has as well. */
  readonly globalFlags: FlagTable;
  readonly style: FlagStyle;
} & (
  | { readonly type: "call"; readonly load: NonNullable<Command["load"]>; readonly values: ParsedValues }
  | { readonly type: "help" }
  | { readonly type: "error"; readonly error: UsageError }
);

/** `Call` of command.ts before its types are known. */
export interface ParsedValues {
  readonly flags: Readonly<Record<string, FlagValue>>;
  readonly args: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly rest: readonly string[];
}

type FlagValue = boolean | number | string | readonly string[] | undefined;

export const HELP: FlagTable = { help: { type: "switch", short: "h", about: "show this help text" } };

/** Errors that a flag's own `check` throws are passed on. */
export function parse(root: Command, argv: readonly string[]): Parsed {
  const { command, path, globalFlags, style, words, unknown, wantsHelp } = locate(root, argv);
  const result = { command, path, globalFlags, style };
  const { load } = command;
  if (command.program !== undefined && load !== undefined) {
    const rest = wantsHelp ? ["--help", ...words] : words;
    return { ...result, type: "call", load, values: { flags: {}, args: {}, rest } };
  }
  const flags = { ...globalFlags, ...command.flags };
  const scanned = scan(command, { ...HELP, ...flags }, style, words);
  if (scanned.flags.has("help") || (wantsHelp && unknown === undefined)) return { ...result, type: "help" };
  try {
    if (unknown !== undefined) throw unknownCommand(command, path, unknown);
    if (scanned.error !== undefined) throw scanned.error;
    const values: ParsedValues = {
      flags: flagValues(flags, scanned.flags, style),
      args: argumentValues(command, scanned.args),
      rest: restOf(command, scanned.rest),
    };
    return load === undefined ? { ...result, type: "help" } : { ...result, type: "call", load, values };
  } catch (error) {
    if (error instanceof UsageError) return { ...result, type: "error", error };
    throw error;
  }
}

interface Located {
  readonly command: Command;
  readonly path: readonly string[];
  readonly globalFlags: FlagTable;
  readonly style: FlagStyle;
  /** Everything except the names of commands. */
  readonly words: readonly string[];
  /** The first word that should be the name of a command and is not. */
  readonly unknown: string | undefined;
  /** The word `help` was given. */
  readonly wantsHelp: boolean;
}

/** Follows the names of commands down the table. */
function locate(root: Command, argv: readonly string[]): Located {
  const path: string[] = [];
  const before: string[] = [];
  let command = root;
  let globalFlags: FlagTable = { ...root.globalFlags };
  let style = root.style ?? "gnu";
  let wantsHelp = false;
  let unknown: string | undefined;
  let i = 0;
  for (; i < argv.length && command.commands !== undefined && command.program === undefined; i++) {
    const word = argv[i] ?? "";
    if (word === "--") break;
    if (isFlagLike(word)) {
      before.push(word);
      const [last] = matchFlag(word, { ...globalFlags, ...command.flags }, style)?.slice(-1) ?? [];
      // The value of a flag is not the name of a command.
      if (last !== undefined && last.flag.type !== "switch" && last.inline === undefined && i + 1 < argv.length)
        before.push(argv[++i] ?? "");
      continue;
    }
    const next: Command | undefined = command.commands.find(({ name }) => name === word);
    if (next === undefined && word === "help") {
      wantsHelp = true;
      continue;
    }
    if (next === undefined) {
      unknown = word;
      i++;
      break;
    }
    path.push(word);
    command = next;
    globalFlags = { ...globalFlags, ...next.globalFlags };
    style = next.style ?? style;
  }
  return { command, path, globalFlags, style, unknown, wantsHelp, words: [...before, ...argv.slice(i)] };
}

interface Scanned {
  /** Values of the flags that were given, as text; switches without a value have `true`. */
  readonly flags: ReadonlyMap<string, readonly GivenValue[]>;
  readonly args: readonly string[];
  readonly rest: readonly string[];
  /** The first word that does not fit. */
  readonly error: UsageError | undefined;
}

interface GivenValue {
  readonly text: string;
  /** The flag as the user typed it: `-o` or `--output`. */
  readonly spelling: string;
}

/** Separates flags, arguments and rest. Reads to the end also after an error, because help may be requested there. */
function scan(grammar: Grammar, flags: FlagTable, style: FlagStyle, words: readonly string[]): Scanned {
  const given = new Map<string, GivenValue[]>();
  const args: string[] = [];
  let rest: readonly string[] = [];
  let error: UsageError | undefined;
  const add = (name: string, value: GivenValue) => given.set(name, [...(given.get(name) ?? []), value]);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    if (word === "--") {
      if (grammar.rest === undefined) args.push(...words.slice(i + 1));
      else rest = words.slice(i + 1);
      break;
    }
    const matches = isFlagLike(word) ? matchFlag(word, flags, style) : undefined;
    if (matches === undefined) {
      if (grammar.rest?.begins === "with the first other word" && args.length === (grammar.arguments?.length ?? 0)) {
        rest = words.slice(i);
        break;
      }
      if (isFlagLike(word) && nextArgument(grammar, args.length)?.mayBeginWithDash !== true)
        error ??= unknownFlag(word, flags, style);
      else args.push(word);
      continue;
    }
    for (const { name, flag, spelling, inline } of matches) {
      if (flag.type === "switch" || inline !== undefined) {
        add(name, { text: inline ?? "true", spelling });
        continue;
      }
      const next = words[i + 1];
      if (next === undefined || isFlagLike(next)) error ??= missingValue(spelling, next);
      else {
        add(name, { text: next, spelling });
        i++;
      }
    }
  }
  return { flags: given, args, rest, error };
}

/** A single dash is a word: it stands for standard input. */
const isFlagLike = (word: string): boolean => word.startsWith("-") && word !== "-";

interface MatchedFlag {
  readonly name: string;
  readonly flag: Flag;
  readonly spelling: string;
  /** The value in the same word. */
  readonly inline: string | undefined;
}

/** Returns the flags in one word, of which `-Rf` has two; undefined if one of them does not exist. */
function matchFlag(word: string, flags: FlagTable, style: FlagStyle): readonly MatchedFlag[] | undefined {
  const typedDashes = word.startsWith("--") ? "--" : "-";
  const body = word.slice(typedDashes.length);
  if (typedDashes === "-" && style !== "go") return matchLetters(body, flags);
  const equals = body.indexOf("=");
  const typed = equals < 0 ? body : body.slice(0, equals);
  const name = longName(typed, flags, style) ?? (style === "go" ? shortName(typed, flags) : undefined);
  const flag = name === undefined ? undefined : flags[name];
  if (name === undefined || flag === undefined) return undefined;
  return [{ name, flag, spelling: typedDashes + typed, inline: equals < 0 ? undefined : body.slice(equals + 1) }];
}

function matchLetters(letters: string, flags: FlagTable): readonly MatchedFlag[] | undefined {
  const matches: MatchedFlag[] = [];
  for (let i = 0; i < letters.length; i++) {
    const letter = letters[i] ?? "";
    const name = shortName(letter, flags);
    const flag = name === undefined ? undefined : flags[name];
    if (name === undefined || flag === undefined) return undefined;
    const isLast = flag.type !== "switch" || i + 1 === letters.length;
    const value = letters.slice(i + 1);
    const inline = isLast && value !== "" ? value.replace(/^=/, "") : undefined;
    matches.push({ name, flag, spelling: `-${letter}`, inline });
    if (isLast) break;
  }
  return matches;
}

function longName(typed: string, flags: FlagTable, style: FlagStyle): string | undefined {
  if (Object.hasOwn(flags, typed)) return typed;
  if (style !== "docopt" || typed === "") return undefined;
  const meant = Object.keys(flags).filter((name) => name.startsWith(typed) && flags[name]?.isHidden !== true);
  return meant.length === 1 ? meant[0] : undefined;
}

const shortName = (letter: string, flags: FlagTable): string | undefined =>
  Object.keys(flags).find((name) => [name, flags[name]?.short, flags[name]?.hiddenShort].includes(letter));

const missingValue = (spelling: string, next: string | undefined): UsageError =>
  new UsageError(`${spelling} needs a value`, {
    hint: next === undefined ? undefined : `A value that begins with a dash is written ${spelling}=${next}`,
  });

function flagValues(flags: FlagTable, given: Scanned["flags"], style: FlagStyle): Readonly<Record<string, FlagValue>> {
  const values: Record<string, FlagValue> = {};
  for (const [name, flag] of Object.entries(flags)) values[name] = flagValue(name, flag, given.get(name) ?? [], style);
  return values;
}

function flagValue(name: string, flag: Flag, given: readonly GivenValue[], style: FlagStyle): FlagValue {
  const last = given.at(-1);
  if (flag.type === "switch") return last !== undefined && switchValue(last);
  if (flag.type === "text" && flag.isRepeatable === true) return given.map((value) => textValue(flag, value));
  const spelling = dashes(name, style) + name;
  if (given.length > 1 && style !== "go") throw new UsageError(`${spelling} is given ${given.length} times`);
  if (last !== undefined) return flag.type === "number" ? numberValue(flag, last) : textValue(flag, last);
  if (flag.isRequired === true) throw new UsageError(`${spelling} is missing`);
  return flag.default;
}

function switchValue({ text, spelling }: GivenValue): boolean {
  if (/^(1|t|true)$/i.test(text)) return true;
  if (/^(0|f|false)$/i.test(text)) return false;
  throw new UsageError(`${spelling}=${text}: ${spelling} has no value`);
}

function textValue(flag: Extract<Flag, { readonly type: "text" }>, { text, spelling }: GivenValue): string {
  if (flag.values !== undefined && flag.isCheckedByCommand !== true && !flag.values.includes(text))
    throw new UsageError(`${spelling} ${text}: want ${alternatives(flag.values)}`);
  flag.check?.(text);
  return text;
}

function numberValue({ min, max }: Extract<Flag, { readonly type: "number" }>, { text, spelling }: GivenValue): number {
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (number >= min && number <= max) return number;
  const range = max === Number.POSITIVE_INFINITY ? `a number from ${min} on` : `a number from ${min} to ${max}`;
  throw new UsageError(`${spelling} ${text}: want ${range}`);
}

/** `ps, json or bird`. */
export const alternatives = (values: readonly string[]): string =>
  values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;

function nextArgument({ arguments: declared = [] }: Grammar, count: number): Argument | undefined {
  const last = declared.at(-1);
  return declared[count] ?? (last?.isRepeatable === true ? last : undefined);
}

function argumentValues(command: Command, given: readonly string[]): ParsedValues["args"] {
  const declared = command.arguments ?? [];
  const values: Record<string, string | readonly string[] | undefined> = {};
  declared.forEach((argument, i) => {
    const { name, isRepeatable, isOptional, isCheckedByCommand } = argument;
    values[name] = isRepeatable === true ? given.slice(i) : given[i];
    if (given.length <= i && isOptional !== true && isCheckedByCommand !== true)
      throw new UsageError(`${name} is missing`);
  });
  const extra = given[declared.length];
  if (extra !== undefined && declared.at(-1)?.isRepeatable !== true) throw extraArgument(command, extra);
  return values;
}

function restOf({ rest }: Command, given: readonly string[]): readonly string[] {
  if (rest !== undefined && rest.isOptional !== true && given.length === 0)
    throw new UsageError(`${rest.name} is missing`);
  return given;
}
