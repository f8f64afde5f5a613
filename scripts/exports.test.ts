import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "bun:test";
import { findUnusedExports } from "./exports.ts";

function faultsOf(files: Record<string, string>): string[] {
  const root = mkdtempSync(join(tmpdir(), "exports-"));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, "src", name)), { recursive: true });
      writeFileSync(join(root, "src", name), text);
    }
    return findUnusedExports(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("what the project exports, somebody needs", () =>
  expect(findUnusedExports(join(import.meta.dir, ".."))).toEqual([]));

const cases: readonly { name: string; files: Record<string, string>; faults: readonly string[] }[] = [
  {
    name: "a name another file imports is fine",
    files: { "a.ts": "export const x = 1;", "b.ts": `import { x } from "./a.ts";` },
    faults: [],
  },
  {
    name: "a name only a test imports keeps nothing alive",
    files: { "a.ts": "export const x = 1;", "b.test.ts": `import { x } from "./a.ts";` },
    faults: ["src/a.ts: nobody needs x"],
  },
  {
    name: "a test may look at what its file uses itself",
    files: { "a.ts": "export const x = 1;\nf(x);", "a.test.ts": `import { x } from "./a.ts";` },
    faults: [],
  },
  {
    name: "what only its own file uses is not exported",
    files: { "a.ts": "export const x = 1;\nf(x);" },
    faults: ["src/a.ts: nobody imports x; keep it to itself"],
  },
  {
    name: "a type goes with the function that speaks of it",
    files: {
      "a.ts": "export interface O {}\nexport function f(o: O) {}",
      "b.ts": `import { f } from "./a.ts";`,
    },
    faults: [],
  },
  {
    name: "a front door hands on only what somebody takes there",
    files: {
      "r/index.ts": `export { x, y as z } from "./a.ts";`,
      "r/a.ts": "export const x = 1;\nexport const y = 2;",
      "b.ts": `import { x } from "./r/index.ts";`,
      "r/c.ts": `import { y } from "./a.ts";`,
    },
    faults: ["src/r/index.ts: nobody imports z from here"],
  },
  {
    name: "a file imported as a whole gives the names that are spoken of",
    files: {
      "r/index.ts": `export * as all from "./a.ts";`,
      "r/a.ts": "export const x = 1;\nexport const y = 2;",
      "b.ts": `import { all } from "./r/index.ts";\nall.x;`,
      "c.ts": `import * as own from "./d.ts";\nown.u;`,
      "d.ts": "export const u = 1;\nexport const v = 2;",
    },
    faults: ["src/d.ts: nobody needs v", "src/r/a.ts: nobody needs y"],
  },
  {
    name: "a file that is loaded when needed gives all its names",
    files: { "a.ts": "export const x = 1;", "b.ts": `load(() => import("./a.ts"));` },
    faults: [],
  },
];
for (const { name, files, faults } of cases)
  test(name, () => expect(faultsOf(files).sort()).toEqual([...faults].sort()));
