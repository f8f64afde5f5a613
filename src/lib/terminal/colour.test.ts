import { expect, test } from "bun:test";
import { usesColour } from "./colour.ts";

const cases = [
  { name: "a terminal gets colours", env: { TERM: "xterm" }, isTerminal: true, want: true },
  { name: "a terminal of unknown type gets colours", env: {}, isTerminal: true, want: true },
  { name: "a file or pipe gets none", env: { TERM: "xterm" }, isTerminal: false, want: false },
  { name: "NO_COLOR switches them off", env: { TERM: "xterm", NO_COLOR: "1" }, isTerminal: true, want: false },
  { name: "an empty NO_COLOR counts as unset", env: { TERM: "xterm", NO_COLOR: "" }, isTerminal: true, want: true },
  { name: "a dumb terminal gets none", env: { TERM: "dumb" }, isTerminal: true, want: false },
];
for (const { name, env, isTerminal, want } of cases)
  test(`usesColour: ${name}`, () => expect(usesColour(env, isTerminal)).toBe(want));
