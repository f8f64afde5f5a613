import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatastore } from "../index.ts";

test("a file that is no datastore, and a folder, are told with what to do", async () => {
  const folder = mkdtempSync(join(tmpdir(), "why-not-"));
  try {
    const file = join(folder, "text");
    writeFileSync(file, "hello, I am a text and no database at all\n".repeat(40));
    const said = (path: string) =>
      openDatastore({ type: "sqlite", path, isFallback: false }).then(
        () => "opened",
        (error: Error) => error.message,
      );
    expect(await said(file)).toContain("name the right file (CALICO_SQLITE_PATH)");
    expect(await said(folder)).toContain("is it a folder");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
