import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writePrivateFile } from "./private-file.ts";

test("only its owner can read a private file, and symbolic links are replaced", () => {
  const folder = mkdtempSync(join(tmpdir(), "private-"));
  try {
    const [victim, path] = [join(folder, "victim"), join(folder, "profile")];
    writeFileSync(victim, "as it was");
    symlinkSync(victim, path);
    writePrivateFile(path, "first");
    writePrivateFile(path, "second");
    expect([readFileSync(victim, "utf8"), readFileSync(path, "utf8")]).toEqual(["as it was", "second"]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const dangling = join(folder, "dangling");
    symlinkSync(join(folder, "nowhere"), dangling);
    writePrivateFile(dangling, "third");
    expect(() => statSync(join(folder, "nowhere"))).toThrow();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
