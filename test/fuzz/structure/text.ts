// Mutates text: inserts words of the format, sets numbers to limits, nests deeply, moves lines, inserts unusual characters.
import type { Random } from "../random.ts";
import { bytes } from "./bytes.ts";
import { MOST_INPUT_BYTES, type MutationContext, type Structure } from "./structure.ts";

/** Changes text. One change in four is a mutation of bytes. */
export const text: Structure = (input, context) => {
  if (context.random.oneIn(4) || input.length === 0) return bytes(input, context);
  // One character per byte, so that invalid UTF-8 is preserved.
  const mutated = context.random.pick(MUTATIONS)(Buffer.from(input).toString("latin1"), context);
  return new Uint8Array(Buffer.from(mutated.slice(0, MOST_INPUT_BYTES), "latin1"));
};

type TextMutation = (text: string, context: MutationContext) => string;

const MUTATIONS: readonly [TextMutation, ...TextMutation[]] = [
  insertWord,
  insertWord,
  insertWord,
  replaceWord,
  replaceWord,
  replaceNumber,
  replaceNumber,
  changeLine,
  changeLine,
  indentLine,
  insertCharacter,
  removePunctuation,
  nest,
];

/** Encodes text as UTF-8, with one character per byte. */
const latin = (character: string): string => Buffer.from(character).toString("latin1");

const CHARACTERS: readonly [string, ...string[]] = [
  "\0",
  "\t",
  "\r",
  "\r\n",
  "\x1b[31m",
  "\x7f",
  latin("\u00a0"),
  latin("\u2028"),
  latin("\ufeff"),
  latin("\u0130"), // its lower case has two characters
  latin("é"),
  latin("😀"),
  "\xed\xa0\x80", // a lone surrogate
  "\xc0\xaf",
  "\xff",
];

export const NUMBERS: readonly [string, ...string[]] = [
  "0",
  "-0",
  "-1",
  "00",
  "08",
  "0x10",
  "1e5",
  "1e400",
  "1.5",
  "128",
  "256",
  "65536",
  "4294967296",
  "9007199254740993",
  "9223372036854775808",
  "18446744073709551616",
  "1".repeat(400),
  "NaN",
];

const NESTS: readonly [readonly [string, string], ...(readonly [string, string])[]] = [
  ["(", ")"],
  ["[", "]"],
  ["{", "}"],
  ['{"a":', "}"],
  ["{a: ", "}"],
  ["- ", ""],
  ["!", ""],
  ["!(", ")"],
  ["&a [", "]"],
  [" ", ""],
];

function insertWord(input: string, { random, dictionary }: MutationContext): string {
  const at = random.below(input.length + 1);
  return input.slice(0, at) + (random.pick(dictionary) ?? random.pick(NUMBERS)) + input.slice(at);
}

function replaceWord(input: string, { random, dictionary, other }: MutationContext): string {
  const word = pickMatch(input, /[\w./:-]+/g, random);
  if (word === undefined) return input;
  const own = pickMatch(input, /[\w./:-]+/g, random)?.[0] ?? "";
  const foreign = pickMatch(Buffer.from(other()).toString("latin1"), /[\w./:-]+/g, random)?.[0] ?? "";
  return replaced(input, word, random.pick([own, foreign, random.pick(dictionary) ?? "", ""]));
}

function replaceNumber(input: string, { random }: MutationContext): string {
  const number = pickMatch(input, /\d+/g, random);
  return number === undefined ? input : replaced(input, number, random.pick(NUMBERS));
}

function changeLine(input: string, { random, other }: MutationContext): string {
  const lines = input.split("\n");
  const at = random.below(lines.length);
  const line = lines[at] ?? "";
  const foreign = random.pick(Buffer.from(other()).toString("latin1").split("\n")) ?? "";
  const to = random.below(lines.length);
  switch (random.below(5)) {
    case 0:
      return lines.toSpliced(at, 1).join("\n");
    case 1:
      return lines.toSpliced(to, 0, line).join("\n");
    case 2:
      return lines.toSpliced(at, 0, foreign).join("\n");
    case 3:
      return lines
        .toSpliced(at, 0, ...Array.from({ length: random.below(random.oneIn(10) ? 5000 : 20) }, () => line))
        .join("\n");
    default:
      return lines.toSpliced(at, 1).toSpliced(to, 0, line).join("\n");
  }
}

function indentLine(input: string, { random }: MutationContext): string {
  const lines = input.split("\n");
  const at = random.below(lines.length);
  const line = lines[at] ?? "";
  return lines
    .with(at, random.oneIn(2) ? line.replace(/^ {1,2}/, "") : `${" ".repeat(1 + random.below(4))}${line}`)
    .join("\n");
}

function insertCharacter(input: string, { random }: MutationContext): string {
  const at = random.below(input.length + 1);
  return input.slice(0, at) + random.pick(CHARACTERS) + input.slice(at);
}

function removePunctuation(input: string, { random }: MutationContext): string {
  const mark = pickMatch(input, /[^\w\s]/g, random);
  return mark === undefined ? input : replaced(input, mark, random.oneIn(2) ? "" : mark[0] + mark[0]);
}

/** Encloses the whole text, or an empty text, in many brackets. */
function nest(input: string, { random }: MutationContext): string {
  const [open, close] = random.pick(NESTS);
  const depth = random.oneIn(8) ? random.pick([1000, 20_000]) : 1 + random.below(12);
  const at = random.below(input.length + 1);
  const inner = random.oneIn(2) ? input : "";
  const nested = `${open.repeat(depth)}${inner}${random.oneIn(4) ? "" : close.repeat(depth)}`;
  return inner === "" ? input.slice(0, at) + nested + input.slice(at) : nested;
}

/** Returns one of the first thousand matches, because searching a whole long text would take too much time. */
function pickMatch(input: string, pattern: RegExp, random: Random): RegExpExecArray | undefined {
  const start = input.length > 4096 ? random.below(input.length - 2048) : 0;
  const found: RegExpExecArray[] = [];
  pattern.lastIndex = 0;
  const part = input.slice(start, start + 4096);
  for (let match = pattern.exec(part); match !== null && found.length < 1000; match = pattern.exec(part)) {
    match.index += start;
    found.push(match);
  }
  return random.pick(found);
}

const replaced = (input: string, match: RegExpExecArray, by: string): string =>
  input.slice(0, match.index) + by + input.slice(match.index + match[0].length);
