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

test("all imports of the project point down", () => expect(findImportFaults(join(import.meta.dir, ".."))).toEqual([]));

const cases = [
  {
    name: "a module of lower rank may be imported through its index.ts",
    file: "calc/graph.ts",
    text: `import { x } from "../model/index.ts";`,
    faults: 0,
  },
  {
    name: "any file of lib may be imported",
    file: "model/keys.ts",
    text: `import { x } from "../lib/ip.ts";`,
    faults: 0,
  },
  {
    name: "an import of a higher rank is rejected",
    file: "model/keys.ts",
    text: `import { x } from "../calc/index.ts";`,
    faults: 1,
  },
  {
    name: "an import of the same rank is rejected",
    file: "calc/a.ts",
    text: `import { x } from "../ipam/index.ts";`,
    faults: 1,
  },
  {
    name: "an import of a private file is rejected",
    file: "calc/a.ts",
    text: `import { x } from "../model/keys.ts";`,
    faults: 1,
  },
  {
    name: "bun:ffi outside kernel/sys is rejected",
    file: "cni/a.ts",
    text: `import { dlopen } from "bun:ffi";`,
    faults: 1,
  },
  {
    name: "I/O in a pure module is rejected",
    file: "calc/a.ts",
    text: `import { readFileSync } from "node:fs";`,
    faults: 1,
  },
  {
    name: "dynamic imports are checked too",
    file: "model/a.ts",
    text: `const x = await import("../calc/index.ts");`,
    faults: 1,
  },
];
for (const { name, file, text, faults } of cases)
  test(`imports: ${name}`, () => expect(faultsOf({ [file]: text })).toHaveLength(faults));
