// Replaces small state files atomically: a reader gets either the old or the new text, never a part of it.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Creates the folder if necessary. */
export function replaceFile(path: string, text: string, mode = 0o644): void {
  const draft = join(dirname(path), `.${basename(path)}`);
  try {
    writeFileSync(draft, text, { mode });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(draft, text, { mode });
  }
  renameSync(draft, path);
}

/** Undefined if the file does not exist or cannot be read. */
export function readFileIfExists(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
