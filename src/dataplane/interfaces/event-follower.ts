// Listens to kernel events, and lists all interfaces when listening starts and at a regular interval. If the listener fails,
// it is opened again after a delay that grows with each failure. Every attempt lists the interfaces once, so that changes
// are found even if events do not work at all.
import { describeError, type Logger } from "../../lib/log/log.ts";
import { type Backoff, backoffDelay, pause } from "../../lib/retry.ts";

export interface EventFollowerOptions {
  /** Starts to listen. The listener calls `onFailure` if it fails. */
  readonly open: (onFailure: (why: Error) => void) => AsyncDisposable;
  /** Lists all interfaces. Called after listening has started, so that no change is missed. */
  readonly list: () => void;
  /** Called after the first list of each listener. */
  readonly onListed: () => void;
  readonly logger: Logger;
  /** Interval between lists, in case an event was lost; 0 or less: never. */
  readonly refreshMs: number;
  readonly backoff?: Backoff;
  /** After a listener worked this long, the next delay is short again. */
  readonly stableMs?: number;
  readonly now?: () => number;
}

const BACKOFF: Backoff = { firstMs: 100, maxMs: 30_000, jitter: 0.2 };
const STABLE_MS = 60_000;
const NEVER_MS = 2 ** 30;

export class EventFollower {
  readonly #options: EventFollowerOptions;
  readonly #log: Logger;

  constructor(options: EventFollowerOptions) {
    this.#options = options;
    this.#log = options.logger;
  }

  /** Runs until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { backoff = BACKOFF, stableMs = STABLE_MS, now = () => performance.now() } = this.#options;
    for (let failures = 0; !signal.aborted; ) {
      const openedAt = now();
      const error = await this.#listen(signal);
      if (signal.aborted) return;
      if (now() - openedAt >= stableMs) failures = 0;
      const pauseMs = Math.round(backoffDelay(backoff, failures++));
      // Repeated failures are logged at debug level.
      const level = failures <= 3 || pauseMs >= backoff.maxMs / 2 ? "warn" : "debug";
      this.#log[level]("listening to interface events failed; retrying", {
        error: describeError(error),
        pauseMs,
        failures,
      });
      await pause(pauseMs, signal);
    }
  }

  /** @returns the error; undefined if the signal aborted */
  async #listen(signal: AbortSignal): Promise<unknown> {
    const failure = Promise.withResolvers<Error>();
    try {
      await using _ = this.#options.open(failure.resolve);
      this.#list();
      return await this.#waitForFailure(signal, failure.promise);
    } catch (error) {
      this.#tryList();
      return error;
    }
  }

  async #waitForFailure(signal: AbortSignal, failure: Promise<Error>): Promise<Error | undefined> {
    const { refreshMs } = this.#options;
    let found: Error | undefined;
    const failed = failure.then((error) => (found = error));
    while (!signal.aborted && found === undefined) {
      const wait = new AbortController();
      const either = AbortSignal.any([signal, wait.signal]);
      await Promise.race([failed, pause(refreshMs > 0 ? refreshMs : NEVER_MS, either)]);
      wait.abort();
      if (!signal.aborted && found === undefined) this.#options.list();
    }
    return found;
  }

  #list(): void {
    this.#options.list();
    this.#options.onListed();
  }

  /** If listening fails, the interfaces can still be listed. */
  #tryList(): void {
    try {
      this.#list();
    } catch (error) {
      this.#log.error("listing interfaces failed; retrying", { error: describeError(error) });
    }
  }
}
