import { expect, test } from "bun:test";
import { forTerminal, onOneLine } from "./visible-text.ts";

const cases = [
  ["plain text stays, with its lines and tabs", "a\tb\nc é\n", "a\tb\nc é\n"],
  ["a window's title", "pod-\x1b]0;owned\x07x", "pod-\\u001b]0;owned\\u0007x"],
  ["the cursor", "a\x1b[2J\x1b[H", "a\\u001b[2J\\u001b[H"],
  ["a line that would be hidden", "DENIED\r\x1b[Kallowed", "DENIED\\r\\u001b[Kallowed"],
  ["C1 and DEL", "a\x9b31mb\x7f", "a\\u009b31mb\\u007f"],
  ["concealed and blinking text", "\x1b[8mx\x1b[5my", "\\u001b[8mx\\u001b[5my"],
  ["our own colours stay", "\x1b[1mNAME\x1b[0m \x1b[32mok\x1b[0m", "\x1b[1mNAME\x1b[0m \x1b[32mok\x1b[0m"],
  ["a line of ours that is written again", "\r\x1b[K  done\n", "\r\x1b[K  done\n"],
] as const;
for (const [name, text, want] of cases) test(`forTerminal: ${name}`, () => expect(forTerminal(text)).toBe(want));

test("onOneLine: a cell keeps no control character at all", () =>
  expect(onOneLine("a\nb\tc\x1b[1md\x9b")).toBe("a\\nb\\tc\\u001b[1md\\u009b"));
