import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readIfThere, replaceFile } from "./whole-file.ts";

const folder = mkdtempSync(join(tmpdir(), "calico-whole-file-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("a file is replaced whole, in a folder that is made for it, and nothing is left beside it", () => {
  const path = join(folder, "a/b/state.json");
  expect(readIfThere(path)).toBeUndefined();
  replaceFile(path, "old");
  replaceFile(path, "new", 0o600);
  expect(readIfThere(path)).toBe("new");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(folder, "a/b"))).toEqual(["state.json"]);
});

test("a reader that has the old file open keeps it", () => {
  const path = join(folder, "mtu");
  writeFileSync(path, "1450");
  const before = statSync(path).ino;
  replaceFile(path, "1500");
  expect(statSync(path).ino).not.toBe(before);
});
