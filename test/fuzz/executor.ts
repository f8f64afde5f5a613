// Runs one target in this process: first its corpus, then mutations of it until the time limit. The sequence of inputs depends
// only on the seed and the corpus.
//
// There is no coverage measurement. Instead an input whose outcome has not been seen before (another error text,
// ignoring names and numbers, or another number of accepted bytes) joins the inputs that are mutated.
import { openSync, readSync } from "node:fs";
import type { Random } from "./random.ts";
import { MOST_INPUT_BYTES } from "./structure/structure.ts";
import { type FuzzTarget, Violation } from "./target.ts";

export type FindingKind = "wrong error" | "broken invariant" | "memory" | "hang" | "crash";

export interface Finding {
  readonly kind: FindingKind;
  readonly what: string;
  readonly input: Uint8Array;
}

export interface ExecutorOptions {
  readonly target: FuzzTarget;
  readonly corpus: readonly Uint8Array[];
  readonly random: Random;
  /** Called around each execution. */
  readonly begin: (input: Uint8Array) => void;
  readonly end: (executions: number, accepted: number) => void;
  readonly onFinding: (finding: Finding) => void;
}

/** Resident memory that one input may add. */
const MOST_MEMORY_BYTES = 200 << 20;
/** The memory of the process is not read again before this time, because allocating that much takes longer. */
const MEMORY_CHECK_MS = 5;
const MOST_FINDINGS = 10;
const MOST_INPUTS = 400;
const MINIMISE_ATTEMPTS = 400;
/** Longer inputs are executed, but not mutated further: they take more time and find nothing that shorter ones do not. */
const MOST_KEPT_BYTES = 4096;

type Outcome =
  | { readonly kind: "accepted" | "rejected"; readonly shape: string }
  | { readonly kind: "finding"; readonly finding: Finding; readonly shape: string };

export class Executor {
  readonly #options: ExecutorOptions;
  /** The corpus, and inputs that were accepted. */
  readonly #accepting: Uint8Array[];
  /** Inputs that were rejected with a new error. */
  readonly #rejecting: Uint8Array[] = [];
  readonly #shapes = new Set<string>();
  readonly #reported = new Set<string>();
  #executions = 0;
  #accepted = 0;
  /** An uncaught error from an event of the current input. */
  #uncaught: unknown;

  constructor(options: ExecutorOptions) {
    this.#options = options;
    this.#accepting = options.corpus.filter(({ length }) => length <= MOST_KEPT_BYTES);
  }

  get executions(): number {
    return this.#executions;
  }
  get accepted(): number {
    return this.#accepted;
  }
  get isOver(): boolean {
    return this.#reported.size >= MOST_FINDINGS;
  }

  recordUncaught(error: unknown): void {
    this.#uncaught ??= error;
  }

  /** Executes every input of the corpus. */
  async replay(): Promise<void> {
    for (const input of this.#options.corpus) await this.#try(input);
  }

  /** Executes mutated inputs until `isTime` returns true. */
  async fuzz(isTime: () => boolean): Promise<void> {
    while (!isTime() && !this.isOver) await this.#try(this.#mutated());
  }

  async #try(input: Uint8Array): Promise<void> {
    const outcome = await this.#execute(input);
    if (outcome.kind === "finding") return this.#report(outcome.finding, outcome.shape);
    const shape = `${outcome.kind} ${outcome.shape}`;
    const pool = outcome.kind === "accepted" ? this.#accepting : this.#rejecting;
    if (this.#shapes.has(shape) || pool.length >= MOST_INPUTS || input.length > MOST_KEPT_BYTES) return;
    this.#shapes.add(shape);
    pool.push(input);
  }

  #mutated(): Uint8Array {
    const { random, target } = this.#options;
    // A mutation of a rejected input is usually rejected for the same reason.
    const pick = (): Uint8Array =>
      (random.oneIn(5) ? random.pick(this.#rejecting) : undefined) ?? random.pick(this.#accepting) ?? new Uint8Array(0);
    const context = { random, dictionary: target.dictionary ?? [], other: pick };
    let input = pick();
    do input = target.structure(input, context).subarray(0, MOST_INPUT_BYTES);
    while (random.oneIn(2));
    return input;
  }

  async #execute(input: Uint8Array): Promise<Outcome> {
    const { target, begin, end } = this.#options;
    begin(input);
    const memoryBefore = residentBytes();
    const started = performance.now();
    let outcome: Outcome;
    try {
      // The target gets a copy, so that it cannot change the corpus.
      const result = target.run(input.slice());
      const isAccepted = typeof result === "boolean" ? result : await result;
      outcome = { kind: isAccepted ? "accepted" : "rejected", shape: String(Math.ceil(Math.log2(input.length + 1))) };
      if (isAccepted) this.#accepted++;
    } catch (error) {
      outcome = this.#judge(error, input);
    }
    if (this.#uncaught !== undefined) {
      outcome = this.#judge(this.#uncaught, input, "not caught: ");
      if (outcome.kind !== "finding") outcome = wrongError(this.#uncaught, input, "not caught: ");
      this.#uncaught = undefined;
    }
    const grown = performance.now() - started < MEMORY_CHECK_MS ? 0 : residentBytes() - memoryBefore;
    if (grown > MOST_MEMORY_BYTES) {
      const what = `the process grew by ${grown >> 20} MB`;
      outcome = { kind: "finding", finding: { kind: "memory", what, input }, shape: "memory" };
    }
    end(++this.#executions, this.#accepted);
    return outcome;
  }

  #judge(error: unknown, input: Uint8Array, prefix = ""): Outcome {
    if (error instanceof Violation) {
      const what = prefix + error.message;
      return { kind: "finding", finding: { kind: "broken invariant", what, input }, shape: shapeOf(what) };
    }
    if (error instanceof Error && this.#options.target.rejections.some((type) => error instanceof type))
      return { kind: "rejected", shape: shapeOf(error.message) };
    return wrongError(error, input, prefix);
  }

  async #report(finding: Finding, shape: string): Promise<void> {
    if (this.#reported.has(shape) || this.isOver) return;
    this.#reported.add(shape);
    const input = finding.kind === "memory" ? finding.input : await this.#minimise(finding.input, shape);
    this.#options.onFinding({ ...finding, input });
  }

  /** Removes parts of the input as long as the finding stays the same. */
  async #minimise(original: Uint8Array, shape: string): Promise<Uint8Array> {
    let input = original;
    let attempts = 0;
    for (let size = input.length >> 1; size >= 1; size >>= 1)
      for (let at = 0; at < input.length && attempts++ < MINIMISE_ATTEMPTS; ) {
        const shorter = new Uint8Array(Buffer.concat([input.subarray(0, at), input.subarray(at + size)]));
        const outcome = await this.#execute(shorter);
        if (outcome.kind === "finding" && outcome.shape === shape) input = shorter;
        else at += size;
      }
    return input;
  }
}

const PAGE_BYTES = 4096;
const statm = openSync("/proc/self/statm", "r");
const statmText = Buffer.alloc(128);

/** 4 µs; `process.memoryUsage.rss()` takes three times as long. */
function residentBytes(): number {
  const length = readSync(statm, statmText, 0, statmText.length, 0);
  return Number(statmText.toString("latin1", 0, length).split(" ")[1]) * PAGE_BYTES;
}

function wrongError(error: unknown, input: Uint8Array, prefix: string): Outcome {
  const name = error instanceof Error ? `${error.name}: ${error.message}` : `not an Error: ${String(error)}`;
  const frame = sourceFrame(error);
  const what = `${prefix}${name}${frame}`;
  return { kind: "finding", finding: { kind: "wrong error", what, input }, shape: shapeOf(what) };
}

/** Returns the location in this repository where the error was thrown. */
function sourceFrame(error: unknown): string {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const [, place] = /\/(src\/[\w./-]+:\d+):/.exec(stack) ?? /\/(test\/fuzz\/[\w./-]+:\d+):/.exec(stack) ?? [];
  return place === undefined ? "" : ` (${place})`;
}

/** Returns the message without quoted parts of the input. */
const shapeOf = (message: string): string =>
  message
    .slice(0, 400)
    .replaceAll(/"(?:[^"\\]|\\.)*"|'[^']*'/g, "'")
    .replaceAll(/(?<![\w/])\S*\d\S*(?![\w/])/g, "#")
    .slice(0, 120);
