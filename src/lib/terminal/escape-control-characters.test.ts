import { expect, test } from "bun:test";
import { escapeForTerminal, escapeCell } from "./escape-control-characters.ts";

const cases = [
  ["plain text is not changed, including line feeds and tabs", "a\tb\nc é\n", "a\tb\nc é\n"],
  ["a sequence that sets the window title", "pod-\x1b]0;owned\x07x", "pod-\\u001b]0;owned\\u0007x"],
  ["sequences that move the cursor", "a\x1b[2J\x1b[H", "a\\u001b[2J\\u001b[H"],
  ["a sequence that hides a line", "DENIED\r\x1b[Kallowed", "DENIED\\r\\u001b[Kallowed"],
  ["C1 and DEL", "a\x9b31mb\x7f", "a\\u009b31mb\\u007f"],
  ["concealed and blinking text", "\x1b[8mx\x1b[5my", "\\u001b[8mx\\u001b[5my"],
  ["our own colours are kept", "\x1b[1mNAME\x1b[0m \x1b[32mok\x1b[0m", "\x1b[1mNAME\x1b[0m \x1b[32mok\x1b[0m"],
  ["the start of our own line that overwrites another is kept", "\r\x1b[K  done\n", "\r\x1b[K  done\n"],
] as const;
for (const [name, text, want] of cases) test(`forTerminal: ${name}`, () => expect(escapeForTerminal(text)).toBe(want));

test("escapeCell: all control characters are escaped", () =>
  expect(escapeCell("a\nb\tc\x1b[1md\x9b")).toBe("a\\nb\\tc\\u001b[1md\\u009b"));
