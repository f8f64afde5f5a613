// Colour, for people only: on a terminal that has not asked for none (https://no-color.org).
import type { World } from "./command.ts";

export function emphasis(world: World): (text: string) => string {
  const plain = (text: string) => text;
  if (world.env["NO_COLOR"] || world.env["TERM"] === "dumb") return plain;
  return world.isTerminal("out") ? (text) => `\x1b[1m${text}\x1b[0m` : plain;
}
