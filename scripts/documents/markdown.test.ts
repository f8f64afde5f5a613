import { expect, test } from "bun:test";
import { anchors, changeLinks, codeBlocks, githubSlug, links, title } from "./markdown.ts";

const PAGE = `# A page

Text with [one](a.md) and [two](b.md#part "hint"), \`[code](no.md)\` and ![picture](p.svg).
<!-- [hidden](no.md) -->
[![nested](badge.svg)](c.md), <https://example.org>

\`\`\`sh
echo "[no](no.md)"
\`\`\`

## Where it is: \`kernel\`/nft

[defined]: d.md
## Same
## Same
`;

test("finds links outside code and comments, with their lines", () =>
  expect(links(PAGE).map(({ target, line }) => `${line} ${target}`)).toEqual([
    "3 a.md",
    "3 b.md#part",
    "3 p.svg",
    "5 badge.svg",
    "5 c.md",
    "13 d.md",
  ]));

test("anchors are those of GitHub", () => {
  expect([...anchors(PAGE)]).toEqual(["a-page", "where-it-is-kernelnft", "same", "same-1"]);
  expect(githubSlug("What is `felix_host`?")).toBe("what-is-felix_host");
});

test("finds the title and code blocks", () => {
  expect(title(PAGE)).toBe("A page");
  expect(codeBlocks(PAGE)).toEqual([{ language: "sh", text: 'echo "[no](no.md)"', line: 7 }]);
});

test("changes links, and turns a link without a target into its label", () => {
  const changed = changeLinks("[a](x.md) [b `c`](gone.ts) ![p](p.svg) `[q](x.md)`", (target) =>
    target === "gone.ts" ? undefined : target.replace("x.md", "y.md"),
  );
  expect(changed).toStartWith("[a](y.md) b `c` ![p](p.svg)");
});
