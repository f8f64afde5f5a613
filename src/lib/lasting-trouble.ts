// A trouble that lasts is told at once, then ever more rarely, and once more when it is over.
import { backoffDelay } from "./retry.ts";

const INTERVALS = { firstMs: 10_000, maxMs: 600_000 };

export class LastingTrouble {
  readonly #now: () => number;
  #words: string | undefined;
  #since = 0;
  #toldAt = 0;
  #tellings = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether to tell it now; another trouble than the last is told at once. */
  isDue(words: string): boolean {
    const now = this.#now();
    if (this.#words === undefined) this.#since = now;
    const isNew = this.#words !== words;
    if (!isNew && now - this.#toldAt < backoffDelay(INTERVALS, this.#tellings - 1)) return false;
    this.#words = words;
    this.#toldAt = now;
    this.#tellings = isNew ? 1 : this.#tellings + 1;
    return true;
  }

  /** How long it has lasted. */
  get seconds(): number {
    return this.#words === undefined ? 0 : Math.round((this.#now() - this.#since) / 1000);
  }

  /** Whether there was any. */
  isOver(): boolean {
    const wasThere = this.#words !== undefined;
    this.#words = undefined;
    return wasThere;
  }
}
