import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { findDeadLinks, findUnreachablePages } from "./links.ts";

const root = join(import.meta.dir, "../..");

test("every link and anchor of the documentation leads somewhere", () => expect(findDeadLinks(root)).toEqual([]));

test("every page is reachable from docs/README.md", () => expect(findUnreachablePages(root)).toEqual([]));

test("reports missing files, missing anchors and unreachable pages", () => {
  const folder = mkdtempSync(join(tmpdir(), "links-"));
  try {
    const files = {
      "README.md": "[gone](docs/gone.md) [docs](docs) [web](https://example.org/x.md)",
      "docs/README.md": "# Index\n[page](page.md#part) [own](#index) [no part](page.md#no-part)",
      "docs/page.md": "# Page\n## Part\n[up](../README.md) [out](../../x.md)",
      "docs/alone.md": "# Alone",
    };
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    expect(findDeadLinks(folder)).toEqual([
      "README.md:1: docs/gone.md: there is no such file",
      "docs/README.md:2: page.md#no-part: docs/page.md has no heading with this anchor",
      "docs/page.md:3: ../../x.md: is outside the repository",
    ]);
    expect(findUnreachablePages(folder)).toEqual(["docs/alone.md"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
