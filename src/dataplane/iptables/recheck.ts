// When to read a table again without being asked: soon after a write (another program may have overwritten it), then
// less and less often, and at a fixed interval in any case. Reading takes time where tables are large, so the wait
// never falls below twice what reading and writing took.

export interface RecheckOptions {
  /** First look after a write. */
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
  #lastReadAt = Number.NEGATIVE_INFINITY;
  #nextAt: number;

  constructor(options: RecheckOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#intervalMs = this.#firstInterval();
    this.#nextAt = this.#now();
  }

  isDue(): boolean {
    return this.#now() >= Math.min(this.#nextAt, this.#refreshAt());
  }

  /** Whether the fixed interval is over, which nothing but reading satisfies. */
  isRefreshDue(): boolean {
    return this.#now() >= this.#refreshAt();
  }

  /** Until the next look; nothing when none is planned. */
  dueInMs(): number | undefined {
    const at = Math.min(this.#nextAt, this.#refreshAt());
    return at === Number.POSITIVE_INFINITY ? undefined : Math.max(0, at - this.#now());
  }

  /** What reading takes, at its longest of late. */
  get readMs(): number {
    return this.#readPeakMs;
  }

  /** The table was read and took this long. */
  read(tookMs: number): void {
    this.#readPeakMs = Math.max(tookMs, this.#readPeakMs * DECAY);
    this.#lastReadAt = this.#now();
    this.confirmed();
  }

  /** The table is known to be as it was. */
  confirmed(): void {
    if (this.#now() < this.#nextAt) return;
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
    this.#nextAt = this.#intervalMs < LAST_POST_WRITE_MS ? this.#now() + this.#intervalMs : Number.POSITIVE_INFINITY;
  }

  #refreshAt(): number {
    return this.#options.refreshMs <= 0 ? Number.POSITIVE_INFINITY : this.#lastReadAt + this.#options.refreshMs;
  }
}
