// A limit on requests: so many at once, so many per second after that.
import { delay } from "../../lib/retry.ts";

export class TokenBucket {
  #tokens: number;
  #at = performance.now();

  /** @param perSecond 0 or less: no limit */
  constructor(
    readonly perSecond: number,
    readonly burst: number,
  ) {
    this.#tokens = burst;
  }

  async take(signal?: AbortSignal): Promise<void> {
    if (this.perSecond <= 0) return;
    const now = performance.now();
    this.#tokens = Math.min(this.burst, this.#tokens + ((now - this.#at) / 1000) * this.perSecond);
    this.#at = now;
    this.#tokens -= 1;
    // Below zero: we are in the queue, behind everybody who went below before us.
    if (this.#tokens < 0) await delay((-this.#tokens / this.perSecond) * 1000, signal);
  }
}
