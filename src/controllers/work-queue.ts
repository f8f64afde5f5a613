// Processes queued keys. A key is in the queue at most once, and at most one worker processes it. A key that fails is retried
// with growing delays, five times; after that it is processed only when it is added again.
import { describeError, type Logger } from "../lib/log/log.ts";
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
  /** Keys that were added while a worker processed them. */
  readonly #addedWhileBusy = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #wake: (() => void)[] = [];

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** No key is waiting, being processed, or scheduled for a retry. */
  get isIdle(): boolean {
    return this.#waiting.size + this.#busy.size + this.#timers.size === 0;
  }

  add(key: string): void {
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
    if (this.#busy.has(key)) this.#addedWhileBusy.add(key);
    else this.#waiting.add(key);
    this.#wake.shift()?.();
  }

  /** Returns after the signal aborts and the work in progress has finished. */
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
        if (!signal.aborted) this.#scheduleRetry(key, error);
      }
      this.#busy.delete(key);
      if (this.#addedWhileBusy.delete(key)) this.add(key);
    }
  }

  #scheduleRetry(key: string, error: unknown): void {
    const { name, log, retries = RETRIES } = this.#options;
    const failures = (this.#failures.get(key) ?? 0) + 1;
    const fields = { controller: name, key, error: describeError(error) };
    if (failures > retries) {
      this.#failures.delete(key);
      log.error("cannot update object, no more retries until the next change or full comparison", fields);
      return;
    }
    this.#failures.set(key, failures);
    log.warn("cannot update object, retrying", { ...fields, failures });
    this.#timers.set(
      key,
      setTimeout(() => this.add(key), backoffDelay(this.#options.backoff ?? BACKOFF, failures - 1)),
    );
  }
}

/** Runs `work` periodically, the first time after one period, until the signal aborts. */
export async function every(periodMs: number, signal: AbortSignal, work: () => Promise<void> | void): Promise<void> {
  while (!signal.aborted) {
    await pause(periodMs, signal);
    if (!signal.aborted) await work();
  }
}
