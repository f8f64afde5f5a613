// Decides when an error that is retried again and again should be logged: at once, then at growing intervals, and once more
// when it is over.
import { backoffDelay } from "../retry.ts";

const INTERVALS = { firstMs: 10_000, maxMs: 600_000 };

export class RepeatedError {
  readonly #now: () => number;
  #message: string | undefined;
  #failingSince = 0;
  #loggedAt = 0;
  #timesLogged = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Call this for each failure. An error whose message differs from the previous one is logged at once. */
  shouldLog(message: string): boolean {
    const now = this.#now();
    if (this.#message === undefined) this.#failingSince = now;
    const isNew = this.#message !== message;
    if (!isNew && now - this.#loggedAt < backoffDelay(INTERVALS, this.#timesLogged - 1)) return false;
    this.#message = message;
    this.#loggedAt = now;
    this.#timesLogged = isNew ? 1 : this.#timesLogged + 1;
    return true;
  }

  /** Time since the first failure. */
  get durationSeconds(): number {
    return this.#message === undefined ? 0 : Math.round((this.#now() - this.#failingSince) / 1000);
  }

  /** Call this after a success. Returns whether there was an error before, so that its end should be logged. */
  clear(): boolean {
    const wasFailing = this.#message !== undefined;
    this.#message = undefined;
    return wasFailing;
  }
}
