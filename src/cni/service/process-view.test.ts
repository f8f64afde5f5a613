import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, describe, expect, test } from "bun:test";
import { identityFor, identityOf } from "./process-view.ts";

const folder = mkdtempSync(join(tmpdir(), "cni-process-view-"));
afterAll(() => rmSync(folder, { recursive: true }));
mkdirSync(join(folder, "real/deep"), { recursive: true });
writeFileSync(join(folder, "real/deep/file"), "");
symlinkSync(join(folder, "real"), join(folder, "absolute"));
symlinkSync("real/deep", join(folder, "relative"));
symlinkSync("../../absolute/deep", join(folder, "real/deep/winding"));
symlinkSync("loop", join(folder, "loop"));

describe("the file that a process finds is identified", () => {
  const real = identityOf(join(folder, "real/deep/file"));
  for (const path of [
    "real/deep/file",
    "absolute/deep/file",
    "relative/file",
    "relative/../deep/./file",
    "real/deep/winding/winding/file",
    "real//deep/file",
  ])
    test(path, () => {
      expect(identityFor(process.pid, join(folder, "/"))).toBe(identityOf(folder));
      expect(identityFor(process.pid, `${folder}/${path}`)).toBe(real);
      expect(identityFor(process.pid, `${relative(process.cwd(), folder)}/${path}`)).toBe(real);
    });

  test("there is no file at a missing name, below a file, in a loop of links, or for an ended process", () => {
    for (const path of ["none", "real/deep/file/x", "loop", "loop/x"])
      expect([path, identityFor(process.pid, join(folder, path))]).toEqual([path, undefined]);
    expect(identityFor(2 ** 22 + 1, folder)).toBeUndefined();
  });
});
