// Errors for words that a table does not have, with the word that was probably meant.
import { nearest } from "../nearest-name.ts";
import { type Command, dashes, type FlagStyle, type FlagTable } from "./command.ts";
import { UnknownWordError, UsageError } from "./usage-error.ts";

/** A group with more commands refers to its help text instead of listing them. */
const MAX_LISTED = 8;

export function unknownCommand(group: Command, path: readonly string[], word: string): UnknownWordError {
  const names = (group.commands ?? []).map(({ name }) => name);
  const below = pathTo(group, word);
  const near = below === undefined ? similar(word, names) : [...path, ...below].join(" ");
  const list = names.length > MAX_LISTED ? undefined : `Commands: ${names.join(", ")}`;
  return new UnknownWordError(`unknown command ${JSON.stringify(word)}`, {
    hint: near === undefined ? list : didYouMean(near),
  });
}

/** The shortest way to a command of this name further down, such as `migrate export` below `datastore`. */
function pathTo(group: Command, name: string): readonly string[] | undefined {
  const paths = (group.commands ?? []).flatMap((entry) => {
    const below = entry.name === name ? [] : pathTo(entry, name);
    return below === undefined ? [] : [[entry.name, ...below]];
  });
  return paths.toSorted((a, b) => a.length - b.length)[0];
}

export function unknownFlag(word: string, flags: FlagTable, style: FlagStyle): UnknownWordError {
  const [typed = ""] = word.split("=");
  const names = Object.keys(flags).filter((name) => flags[name]?.isHidden !== true);
  const near = similar(typed.replace(/^--?/, ""), names);
  return new UnknownWordError(`unknown flag ${typed}`, {
    hint: near === undefined ? undefined : didYouMean(dashes(near, style) + near),
  });
}

export function extraArgument({ rest, extraArgumentHint }: Command, word: string): UsageError {
  const hint =
    rest === undefined ? extraArgumentHint?.(word) : `Write -- before ${word}, so that it is not parsed here.`;
  return new UsageError(`unexpected argument ${JSON.stringify(word)}`, { hint });
}

/** A name that begins with the word, if there is only one; else the nearest by edit distance. */
function similar(word: string, names: readonly string[]): string | undefined {
  const longer = names.filter((name) => word.length > 1 && name.startsWith(word));
  return longer.length === 1 ? longer[0] : nearest(word, names);
}

const didYouMean = (word: string): string => `Did you mean ${word}?`;
