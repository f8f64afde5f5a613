// Colours of calicoctl's output.
import { usesColour } from "../lib/colour.ts";
import type { World } from "./command.ts";

export function emphasis(world: World): (text: string) => string {
  return isColourful(world) ? (text) => `\x1b[1m${text}\x1b[0m` : (text) => text;
}

/** Green and red for the words that end a line with a verdict. */
export function verdictColours(world: World): (text: string) => string {
  const colour = { allowed: 32, denied: 31 } as const;
  const paint = (word: string) => `: \x1b[${colour[word === "allowed" ? word : "denied"]}m${word}\x1b[0m`;
  return isColourful(world)
    ? (text) => text.replaceAll(/: (allowed|denied)$/gm, (_, word: string) => paint(word))
    : (text) => text;
}

const isColourful = (world: World): boolean => usesColour(world.env, world.isTerminal("out"));
