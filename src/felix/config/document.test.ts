import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { documentSettings } from "./document.ts";

test("docs/felix-configuration.md matches the declarations; otherwise run `make felix-docs`", () =>
  expect(readFileSync(join(import.meta.dir, "../../../docs/felix-configuration.md"), "utf8")).toBe(documentSettings()));
