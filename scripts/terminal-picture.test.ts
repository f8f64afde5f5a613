import { expect, test } from "bun:test";
import { drawTerminal, pictureText } from "./terminal-picture.ts";

test("a picture contains the last state of a line, with colours and escaped text", () => {
  const svg = drawTerminal("  … step\r\x1b[K  \x1b[32m✓\x1b[0m step \x1b[2m0.1 s\x1b[0m\na <b> & c");
  expect(svg).toContain('  <tspan fill="#69db7c">✓</tspan> step <tspan fill-opacity="0.6">0.1 s</tspan></text>');
  expect(svg).toContain("a &lt;b&gt; &amp; c</text>");
  expect(svg).not.toContain("…");
});

test("the text of a picture equals that of the terminal", () => {
  expect(pictureText(drawTerminal("\x1b[1mtitle\x1b[0m\n  a <b> &amp; c\n"))).toBe("title\n  a <b> &amp; c\n");
});
