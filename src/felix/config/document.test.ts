import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { documentParameters } from "./document.ts";

test("the page of settings says what the declarations say; else run `make felix-docs`", () =>
  expect(readFileSync(join(import.meta.dir, "../../../docs/felix-configuration.md"), "utf8")).toBe(
    documentParameters(),
  ));
