import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readFileIfExists, replaceFile } from "./replace-file.ts";

const folder = mkdtempSync(join(tmpdir(), "calico-replace-file-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("a file is replaced in a new folder, and no temporary file remains", () => {
  const path = join(folder, "a/b/state.json");
  expect(readFileIfExists(path)).toBeUndefined();
  replaceFile(path, "old");
  replaceFile(path, "new", 0o600);
  expect(readFileIfExists(path)).toBe("new");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(folder, "a/b"))).toEqual(["state.json"]);
});

test("replacing creates a new file, so that a process with the old file open can read it to its end", () => {
  const path = join(folder, "mtu");
  writeFileSync(path, "1450");
  const before = statSync(path).ino;
  replaceFile(path, "1500");
  expect(statSync(path).ino).not.toBe(before);
});
