// Follows the kernel's events, and lists everything whenever they break off and now and then besides. A listener that
// dies is opened again after a pause that grows while it does not live; meanwhile every attempt lists the interfaces
// once, so that a host whose events cannot be had at all is looked at from time to time instead of not at all.
import { describeError, type Logger } from "../../lib/log.ts";
import { type Backoff, backoffDelay, pause } from "../../lib/retry.ts";

export interface EventFollowerOptions {
  /** Begins to listen; the listener tells when it ended by itself. */
  readonly open: (onFailure: (why: Error) => void) => AsyncDisposable;
  /** Lists everything. Listening first, listing after: nothing falls between. */
  readonly list: () => void;
  /** What was listed when listening began is all there is. */
  readonly onListed: () => void;
  readonly logger: Logger;
  /** How often to list in case an event was lost; 0 or less: never. */
  readonly refreshMs: number;
  readonly backoff?: Backoff;
  /** A listener that lived this long counts as sound: the next pause is short again. */
  readonly soundMs?: number;
  readonly now?: () => number;
}

const BACKOFF: Backoff = { firstMs: 100, maxMs: 30_000, jitter: 0.2 };
const SOUND_MS = 60_000;
const NEVER_MS = 2 ** 30;

export class EventFollower {
  readonly #options: EventFollowerOptions;
  readonly #log: Logger;

  constructor(options: EventFollowerOptions) {
    this.#options = options;
    this.#log = options.logger;
  }

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { backoff = BACKOFF, soundMs = SOUND_MS, now = () => performance.now() } = this.#options;
    for (let failures = 0; !signal.aborted; ) {
      const openedAt = now();
      const why = await this.#listen(signal);
      if (signal.aborted) return;
      if (now() - openedAt >= soundMs) failures = 0;
      const pauseMs = Math.round(backoffDelay(backoff, failures++));
      // Once it is known that events do not last, each further time is no news.
      const say = failures <= 3 || pauseMs >= backoff.maxMs / 2 ? "warn" : "debug";
      this.#log[say]("interface events broke off; listing the interfaces and listening again", {
        error: describeError(why),
        pauseMs,
        failures,
      });
      await pause(pauseMs, signal);
    }
  }

  /** Why it ended; nothing when it was told to. */
  async #listen(signal: AbortSignal): Promise<unknown> {
    const broken = Promise.withResolvers<Error>();
    try {
      await using _ = this.#options.open(broken.resolve);
      this.#list();
      return await this.#untilBroken(signal, broken.promise);
    } catch (error) {
      this.#tryList();
      return error;
    }
  }

  async #untilBroken(signal: AbortSignal, broken: Promise<Error>): Promise<Error | undefined> {
    const { refreshMs } = this.#options;
    let why: Error | undefined;
    const ended = broken.then((error) => (why = error));
    while (!signal.aborted && why === undefined) {
      const wait = new AbortController();
      const either = AbortSignal.any([signal, wait.signal]);
      await Promise.race([ended, pause(refreshMs > 0 ? refreshMs : NEVER_MS, either)]);
      wait.abort();
      if (!signal.aborted && why === undefined) this.#options.list();
    }
    return why;
  }

  #list(): void {
    this.#options.list();
    this.#options.onListed();
  }

  /** Where nobody can listen, what there is can still be listed. */
  #tryList(): void {
    try {
      this.#list();
    } catch (error) {
      this.#log.error("interfaces can be neither watched nor listed; trying again", { error: describeError(error) });
    }
  }
}
