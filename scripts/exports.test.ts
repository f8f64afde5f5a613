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

test("every export of the project is used", () => expect(findUnusedExports(join(import.meta.dir, ".."))).toEqual([]));

const cases: readonly { name: string; files: Record<string, string>; faults: readonly string[] }[] = [
  {
    name: "a name that another file imports is used",
    files: { "a.ts": "export const x = 1;", "b.ts": `import { x } from "./a.ts";` },
    faults: [],
  },
  {
    name: "a name that only a test imports is not used",
    files: { "a.ts": "export const x = 1;", "b.test.ts": `import { x } from "./a.ts";` },
    faults: ["src/a.ts: x is not used"],
  },
  {
    name: "a name that a test and its own file use is used",
    files: { "a.ts": "export const x = 1;\nf(x);", "a.test.ts": `import { x } from "./a.ts";` },
    faults: [],
  },
  {
    name: "a name that only its own file uses must not be exported",
    files: { "a.ts": "export const x = 1;\nf(x);" },
    faults: ["src/a.ts: x is only used in this file; do not export it"],
  },
  {
    name: "a type that an exported function uses may be exported",
    files: {
      "a.ts": "export interface O {}\nexport function f(o: O) {}",
      "b.ts": `import { f } from "./a.ts";`,
    },
    faults: [],
  },
  {
    name: "a re-export of an index.ts must be imported",
    files: {
      "r/index.ts": `export { x, y as z } from "./a.ts";`,
      "r/a.ts": "export const x = 1;\nexport const y = 2;",
      "b.ts": `import { x } from "./r/index.ts";`,
      "r/c.ts": `import { y } from "./a.ts";`,
    },
    faults: ["src/r/index.ts: no file imports z from here"],
  },
  {
    name: "a namespace import uses the names that the file mentions",
    files: {
      "r/index.ts": `export * as all from "./a.ts";`,
      "r/a.ts": "export const x = 1;\nexport const y = 2;",
      "b.ts": `import { all } from "./r/index.ts";\nall.x;`,
      "c.ts": `import * as own from "./d.ts";\nown.u;`,
      "d.ts": "export const u = 1;\nexport const v = 2;",
    },
    faults: ["src/d.ts: v is not used", "src/r/a.ts: y is not used"],
  },
  {
    name: "a dynamic import uses all names",
    files: { "a.ts": "export const x = 1;", "b.ts": `load(() => import("./a.ts"));` },
    faults: [],
  },
];
for (const { name, files, faults } of cases)
  test(name, () => expect(faultsOf(files).sort()).toEqual([...faults].sort()));
