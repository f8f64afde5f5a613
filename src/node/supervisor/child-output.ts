// Writes the output of child processes to standard output, each line with the name of its child, and, unless file logging
// is disabled, to one log file per child, which is rotated.
import { appendFileSync, mkdirSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";

const MAX_BYTES = 10_000_000;
const KEPT = 5;

export class ChildOutput {
  readonly #folder: string | undefined;
  readonly #write: (text: string) => void;
  readonly #sizes = new Map<string, number>();

  /** @param folder undefined = no files */
  constructor(folder: string | undefined, write: (text: string) => void = toStdout) {
    this.#folder = folder;
    this.#write = write;
  }

  line(child: string, text: string): void {
    this.#write(`${child}: ${text}\n`);
    if (this.#folder !== undefined) this.#append(join(this.#folder, child), `${new Date().toISOString()} ${text}\n`);
  }

  /** Drops lines that cannot be written: a full disk must not stop the node. */
  #append(folder: string, text: string): void {
    const file = join(folder, "current");
    try {
      let size = this.#sizes.get(file);
      if (size === undefined) {
        mkdirSync(folder, { recursive: true });
        size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
      }
      if (size + text.length > MAX_BYTES) {
        rotate(folder);
        size = 0;
      }
      appendFileSync(file, text, { mode: 0o644 });
      this.#sizes.set(file, size + text.length);
    } catch {
      this.#sizes.delete(file);
    }
  }
}

function rotate(folder: string): void {
  rmSync(join(folder, `@${KEPT}`), { force: true });
  for (let n = KEPT - 1; n >= 0; n--) {
    const from = join(folder, n === 0 ? "current" : `@${n}`);
    if (statSync(from, { throwIfNoEntry: false }) !== undefined) renameSync(from, join(folder, `@${n + 1}`));
  }
}

function toStdout(text: string): void {
  try {
    writeSync(1, text);
  } catch {
    // standard output is closed
  }
}
