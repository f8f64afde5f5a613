// A token bucket: limits how often something may happen. It holds up to `capacity` tokens for a burst and gains one token
// every `refillMs`.
import { delay } from "./retry.ts";

/** Waits shorter than this are treated as 0: they are only rounding errors of `performance.now()`. */
const ROUNDING_MS = 1e-6;

export class TokenBucket {
  readonly #capacity: number;
  readonly #refillMs: number;
  readonly #now: () => number;
  /**
   * The whole state: the bucket holds one token for every `refillMs` that passed since this moment. In the future, it is
   * the moment at which the last caller of `take` may continue.
   */
  #emptyAt: number;

  constructor(options: {
    readonly capacity: number;
    /** Tokens at the start; by default the bucket is full. */
    readonly initial?: number;
    /** 0: no limit. */
    readonly refillMs: number;
    readonly now?: () => number;
  }) {
    this.#capacity = options.capacity;
    this.#refillMs = options.refillMs;
    this.#now = options.now ?? (() => performance.now());
    this.#emptyAt = this.#now() - (options.initial ?? options.capacity) * options.refillMs;
  }

  /** Takes a token and returns 0; if there is none, takes nothing and returns the milliseconds until the next one. */
  tryTake(): number {
    const now = this.#now();
    const next = this.#nextAt(now);
    if (next - now > ROUNDING_MS) return next - now;
    this.#emptyAt = next;
    return 0;
  }

  /** Takes a token, waiting for it if there is none. Callers continue in the order of their calls. */
  async take(signal?: AbortSignal): Promise<void> {
    const now = this.#now();
    this.#emptyAt = this.#nextAt(now);
    if (this.#emptyAt - now > ROUNDING_MS) await delay(this.#emptyAt - now, signal);
  }

  /** The moment from which a token can be taken, which is also the value of `#emptyAt` after it was taken. */
  #nextAt(now: number): number {
    return Math.max(this.#emptyAt, now - this.#capacity * this.#refillMs) + this.#refillMs;
  }
}
