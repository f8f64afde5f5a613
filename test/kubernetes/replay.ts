// Replays recordings of Calico. They are not part of this project, and are read if they exist next to the checkout. Every
// difference must be listed, with its reason, in test/golden-exceptions.txt.
import { expect } from "bun:test";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { RECORDINGS, suite } from "./cluster.ts";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

const EXCEPTIONS = join(import.meta.dir, "../golden-exceptions.txt");

/** Registers a test that replays one suite, or prints one line if there are no recordings. */
export function replay(name: string, folder: string, run: (score: Score) => Promise<void>, timeoutMs = 120_000): void {
  if (!existsSync(join(RECORDINGS, folder))) {
    console.error(`${name}: no recordings next to this checkout (${folder}), nothing replayed`);
    return;
  }
  suite(
    `${name} answers as the recorded original`,
    async () => {
      const score = new Score(name);
      await run(score);
      score.finish();
    },
    timeoutMs,
  );
}

export const readRecording = <T>(path: string): T => JSON.parse(readFileSync(join(RECORDINGS, path), "utf8")) as T;
export const listRecordings = (folder: string): string[] =>
  readdirSync(join(RECORDINGS, folder)).filter((name) => name.endsWith(".json"));

/** Counts equal results. */
export class Score {
  #passed = 0;
  readonly #expected: string[] = [];
  readonly #failed: string[] = [];
  readonly #exceptions: readonly string[];

  constructor(readonly name: string) {
    this.#exceptions = readFileSync(EXCEPTIONS, "utf8")
      .split("\n")
      .map((line) => line.split(" # ")[0]?.trim() ?? "")
      .filter((line) => line.startsWith(`${name}: `))
      .map((line) => line.slice(name.length + 2));
  }

  check(what: string, isEqual: boolean, want?: unknown, got?: unknown): void {
    if (isEqual) this.#passed++;
    else if (this.isException(what)) this.#expected.push(what);
    else {
      this.#failed.push(what);
      console.error(`${this.name}: ${what}\n  want ${brief(want)}\n  got  ${brief(got)}`);
    }
  }

  /** Succeeds if the value equals one of the recorded versions. */
  same(what: string, wanted: readonly unknown[], got: unknown): void {
    this.check(
      what,
      wanted.some((want) => isSame(want, got)),
      wanted[0],
      got,
    );
  }

  isException(what: string): boolean {
    return this.#exceptions.some((beginning) => what.startsWith(beginning));
  }

  get failures(): number {
    return this.#failed.length;
  }

  finish(): void {
    const total = this.#passed + this.#expected.length + this.#failed.length;
    console.log(`${this.name}: ${this.#passed} of ${total} equal, ${this.#expected.length} differ on purpose`);
    expect(this.#failed).toEqual([]);
    expect(total).toBeGreaterThan(0);
  }
}

/** Compares as JSON: an absent field equals undefined. */
export const isSame = (a: unknown, b: unknown): boolean => Bun.deepEquals(a, b);

const brief = (value: unknown): string => (JSON.stringify(value) ?? "nothing").slice(0, 3000);

const UUID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g;
const TIME = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const IPAM_TIME = /\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000 UTC/g;

/** Replaces UIDs and times by the placeholders of the recordings. */
export function normalized(text: string): string {
  return text.replace(UUID, "UID").replace(TIME, "TIME").replace(IPAM_TIME, "TIME");
}
export const normalizedJson = <T>(value: T): T => JSON.parse(normalized(JSON.stringify(value))) as T;
