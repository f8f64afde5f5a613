import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "bun:test";
import { findImportFaults } from "./imports.ts";

function faultsOf(files: Record<string, string>): string[] {
  const root = mkdtempSync(join(tmpdir(), "imports-"));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, "src", name)), { recursive: true });
      writeFileSync(join(root, "src", name), text);
    }
    return findImportFaults(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("the project's own imports all point down", () =>
  expect(findImportFaults(join(import.meta.dir, ".."))).toEqual([]));

const cases = [
  {
    name: "a lower room through its index is fine",
    file: "calc/graph.ts",
    text: `import { x } from "../model/index.ts";`,
    faults: 0,
  },
  { name: "a file of lib is fine", file: "model/keys.ts", text: `import { x } from "../lib/ip.ts";`, faults: 0 },
  { name: "an arrow up is refused", file: "model/keys.ts", text: `import { x } from "../calc/index.ts";`, faults: 1 },
  { name: "an arrow sideways is refused", file: "calc/a.ts", text: `import { x } from "../ipam/index.ts";`, faults: 1 },
  { name: "a private file is refused", file: "calc/a.ts", text: `import { x } from "../model/keys.ts";`, faults: 1 },
  { name: "FFI elsewhere is refused", file: "cni/a.ts", text: `import { dlopen } from "bun:ffi";`, faults: 1 },
  {
    name: "I/O in a pure room is refused",
    file: "calc/a.ts",
    text: `import { readFileSync } from "node:fs";`,
    faults: 1,
  },
  {
    name: "a lazy import is judged too",
    file: "model/a.ts",
    text: `const x = await import("../calc/index.ts");`,
    faults: 1,
  },
];
for (const { name, file, text, faults } of cases)
  test(`imports: ${name}`, () => expect(faultsOf({ [file]: text })).toHaveLength(faults));
