// Where the lines of a node's parts go: to our own standard output, tagged by part, and, unless switched off, to a file
// per part that is renamed when it is full.
import { appendFileSync, mkdirSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";

const MAX_BYTES = 10_000_000;
const KEPT = 5;

export class PartOutput {
  readonly #folder: string | undefined;
  readonly #write: (text: string) => void;
  readonly #sizes = new Map<string, number>();

  /** @param folder undefined = no files */
  constructor(folder: string | undefined, write: (text: string) => void = toStdout) {
    this.#folder = folder;
    this.#write = write;
  }

  line(part: string, text: string): void {
    this.#write(`${part}: ${text}\n`);
    if (this.#folder !== undefined) this.#append(join(this.#folder, part), `${new Date().toISOString()} ${text}\n`);
  }

  /** A disk that is full must not stop the node: what cannot be written is lost. */
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
    // Nobody reads.
  }
}
