import { expect, test } from "bun:test";
import { drawTerminal } from "./terminal-picture.ts";

test("a picture shows the last state of a line, in its colours, with its text escaped", () => {
  const svg = drawTerminal("  … step\r\x1b[K  \x1b[32m✓\x1b[0m step \x1b[2m0.1 s\x1b[0m\na <b> & c");
  expect(svg).toContain('  <tspan fill="#69db7c">✓</tspan> step <tspan fill-opacity="0.6">0.1 s</tspan></text>');
  expect(svg).toContain("a &lt;b&gt; &amp; c</text>");
  expect(svg).not.toContain("…");
});
