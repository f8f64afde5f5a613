// Adds bold text and colours to calicoctl's output on a terminal.
import { usesColour } from "../../lib/terminal/colour.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";

export function emphasis(io: CommandIo): (text: string) => string {
  return hasColour(io) ? (text) => `\x1b[1m${text}\x1b[0m` : (text) => text;
}

/** Colours a verdict at the end of a line: allowed is green, denied is red. */
export function verdictColours(io: CommandIo): (text: string) => string {
  const colour = { allowed: 32, denied: 31 } as const;
  const coloured = (word: string) => `: \x1b[${colour[word === "allowed" ? word : "denied"]}m${word}\x1b[0m`;
  return hasColour(io)
    ? (text) => text.replaceAll(/: (allowed|denied)$/gm, (_, word: string) => coloured(word))
    : (text) => text;
}

const hasColour = (io: CommandIo): boolean => usesColour(io.env, io.isTerminal("out"));
