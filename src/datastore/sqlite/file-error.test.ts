import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatastore } from "../index.ts";

test("the error for a file of another format, or a directory, contains a remedy", async () => {
  const folder = mkdtempSync(join(tmpdir(), "file-error-"));
  try {
    const file = join(folder, "text");
    writeFileSync(file, "hello, I am a text and no database at all\n".repeat(40));
    const messageOf = (path: string) =>
      openDatastore({ type: "sqlite", path, isFallback: false }).then(
        () => "opened",
        (error: Error) => error.message,
      );
    expect(await messageOf(file)).toContain("set CALICO_SQLITE_PATH to the right file");
    expect(await messageOf(folder)).toContain("it may be a directory");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
