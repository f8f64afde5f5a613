// Colours of calicoctl's output.
import { usesColour } from "../../lib/terminal/colour.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";

export function emphasis(io: CommandIo): (text: string) => string {
  return isColourful(io) ? (text) => `\x1b[1m${text}\x1b[0m` : (text) => text;
}

/** Green and red for the words that end a line with a verdict. */
export function verdictColours(io: CommandIo): (text: string) => string {
  const colour = { allowed: 32, denied: 31 } as const;
  const paint = (word: string) => `: \x1b[${colour[word === "allowed" ? word : "denied"]}m${word}\x1b[0m`;
  return isColourful(io)
    ? (text) => text.replaceAll(/: (allowed|denied)$/gm, (_, word: string) => paint(word))
    : (text) => text;
}

const isColourful = (io: CommandIo): boolean => usesColour(io.env, io.isTerminal("out"));
