// How often the loop may apply: a bucket that holds a few rounds for a burst and refills slowly.

export class Throttle {
  #tokens: number;
  #refilledAt: number;
  readonly #capacity: number;
  readonly #refillMs: number;
  readonly #now: () => number;

  constructor(options: {
    readonly capacity: number;
    readonly initial: number;
    readonly refillMs: number;
    readonly now?: () => number;
  }) {
    this.#capacity = options.capacity;
    this.#tokens = options.initial;
    this.#refillMs = options.refillMs;
    this.#now = options.now ?? (() => performance.now());
    this.#refilledAt = this.#now();
  }

  /** Takes one round if there is one; else how long until there is. */
  take(): { readonly ok: true } | { readonly ok: false; readonly waitMs: number } {
    const now = this.#now();
    const refills = Math.floor((now - this.#refilledAt) / this.#refillMs);
    if (refills > 0) {
      this.#tokens = Math.min(this.#capacity, this.#tokens + refills);
      this.#refilledAt += refills * this.#refillMs;
    }
    if (this.#tokens >= 1) {
      this.#tokens--;
      return { ok: true };
    }
    return { ok: false, waitMs: this.#refilledAt + this.#refillMs - now };
  }
}
