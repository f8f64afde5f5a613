// Small files by which programs tell one another something. Whoever reads one, at whatever moment, meets the old text or
// the new one, never half of it.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Puts the text in the file's place at once; its folder is made when it is not there. */
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

/** The file's text; undefined when there is none, or none that we may read. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
