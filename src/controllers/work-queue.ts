// Keys that want work, each at most once in the queue and by one worker at a time. A key that fails comes back after a
// while, five times; then it waits until somebody asks for it again.
import { describeError, type Logger } from "../lib/log.ts";
import { type Backoff, backoffDelay, pause } from "../lib/retry.ts";

const RETRIES = 5;
const BACKOFF: Backoff = { firstMs: 5, maxMs: 30_000, factor: 4 };

export interface WorkQueueOptions {
  readonly name: string;
  readonly work: (key: string, signal: AbortSignal) => Promise<void>;
  readonly log: Logger;
  readonly workers?: number;
  readonly retries?: number;
  /** Shorter in tests. */
  readonly backoff?: Backoff;
}

export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #busy = new Set<string>();
  /** Asked for while it was being worked on. */
  readonly #again = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #wake: (() => void)[] = [];

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** Nothing waits, runs, or will come back by itself. */
  get isIdle(): boolean {
    return this.#waiting.size + this.#busy.size + this.#timers.size === 0;
  }

  add(key: string): void {
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
    if (this.#busy.has(key)) this.#again.add(key);
    else this.#waiting.add(key);
    this.#wake.shift()?.();
  }

  /** Until the signal aborts; work under way is let finish. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = () => {
      for (const timer of this.#timers.values()) clearTimeout(timer);
      this.#timers.clear();
      for (const wake of this.#wake) wake();
      this.#wake = [];
    };
    signal.addEventListener("abort", stop, { once: true });
    await Promise.all(Array.from({ length: this.#options.workers ?? 1 }, () => this.#worker(signal)));
    signal.removeEventListener("abort", stop);
  }

  async #worker(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const [key] = this.#waiting;
      if (key === undefined) {
        await new Promise<void>((resolve) => this.#wake.push(resolve));
        continue;
      }
      this.#waiting.delete(key);
      this.#busy.add(key);
      try {
        await this.#options.work(key, signal);
        this.#failures.delete(key);
      } catch (error) {
        if (!signal.aborted) this.#failed(key, error);
      }
      this.#busy.delete(key);
      if (this.#again.delete(key)) this.add(key);
    }
  }

  #failed(key: string, error: unknown): void {
    const { name, log, retries = RETRIES } = this.#options;
    const failures = (this.#failures.get(key) ?? 0) + 1;
    const fields = { controller: name, key, error: describeError(error) };
    if (failures > retries) {
      this.#failures.delete(key);
      log.error("gave up on an object until it is looked at again", fields);
      return;
    }
    this.#failures.set(key, failures);
    log.warn("an object could not be brought up to date; trying again", { ...fields, failures });
    this.#timers.set(
      key,
      setTimeout(() => this.add(key), backoffDelay(this.#options.backoff ?? BACKOFF, failures - 1)),
    );
  }
}

/** Runs `work` every so often, the first time after one period, until the signal aborts. */
export async function every(periodMs: number, signal: AbortSignal, work: () => Promise<void> | void): Promise<void> {
  while (!signal.aborted) {
    await pause(periodMs, signal);
    if (!signal.aborted) await work();
  }
}
