// Schedules reads of an iptables table: soon after a write, because another program may have overwritten it, then at growing
// intervals, and at a fixed interval in any case. Large tables take long to read, so the interval is at least twice the
// duration of a read and a write.

export interface RecheckOptions {
  /** Delay of the first read after a write. */
  readonly postWriteMs: number;
  /** 0 or less: never. */
  readonly refreshMs: number;
  readonly now?: () => number;
}

const MIN_POST_WRITE_MS = 50;
const LAST_POST_WRITE_MS = 3_600_000;
const DECAY = 0.99;

export class RecheckTimer {
  readonly #options: RecheckOptions;
  readonly #now: () => number;
  #intervalMs: number;
  #readPeakMs = 0;
  #writePeakMs = 0;
  #lastReadMs = Number.NEGATIVE_INFINITY;
  #nextMs: number;

  constructor(options: RecheckOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#intervalMs = this.#firstInterval();
    this.#nextMs = this.#now();
  }

  isDue(): boolean {
    return this.#now() >= Math.min(this.#nextMs, this.#refreshAt());
  }

  /** True if the fixed interval has passed. Then the table must be read. */
  isRefreshDue(): boolean {
    return this.#now() >= this.#refreshAt();
  }

  /** Returns the time until the next read; undefined if none is scheduled. */
  dueInMs(): number | undefined {
    const at = Math.min(this.#nextMs, this.#refreshAt());
    return at === Number.POSITIVE_INFINITY ? undefined : Math.max(0, at - this.#now());
  }

  /** The duration of a read: the recent maximum. */
  get readMs(): number {
    return this.#readPeakMs;
  }

  /** Must be called after a read. */
  read(tookMs: number): void {
    this.#readPeakMs = Math.max(tookMs, this.#readPeakMs * DECAY);
    this.#lastReadMs = this.#now();
    this.confirmed();
  }

  /** Must be called if the table is known to be unchanged. */
  confirmed(): void {
    if (this.#now() < this.#nextMs) return;
    this.#intervalMs *= 2;
    this.#plan();
  }

  wrote(tookMs: number): void {
    this.#writePeakMs = Math.max(tookMs, this.#writePeakMs * DECAY);
    this.#intervalMs = this.#firstInterval();
    this.#plan();
  }

  #firstInterval(): number {
    return Math.max(MIN_POST_WRITE_MS, this.#options.postWriteMs, 2 * (this.#readPeakMs + this.#writePeakMs));
  }

  #plan(): void {
    this.#nextMs = this.#intervalMs < LAST_POST_WRITE_MS ? this.#now() + this.#intervalMs : Number.POSITIVE_INFINITY;
  }

  #refreshAt(): number {
    return this.#options.refreshMs <= 0 ? Number.POSITIVE_INFINITY : this.#lastReadMs + this.#options.refreshMs;
  }
}
