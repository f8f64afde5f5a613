// Logs failures of list-and-watch loops, one line per change of state, and measures how old their view is.
//
//   state of the server        line
//   no answer for 30 s         warn   "no answer from the datastore; retrying"
//   no answer for 10 min       error  "no answer from the datastore; the view is out of date"
//   answers again              info   "the datastore answers again" (if a line above was logged)
//   refuses a request          warn   "list or watch failed; retrying" (again if the reason changes)
//   accepts it again           info   "list and watch succeed again"
import { describeError, type Logger, silentLogger } from "../lib/log/log.ts";
import { Unavailable } from "./errors.ts";

/** Shorter interruptions, such as the restart of a server, are only visible at debug level and in the view's age. */
const WARN_AFTER_MS = 30_000;

interface Failure {
  readonly sinceMs: number;
  readonly hasAnswer: boolean;
  readonly reason: string;
}

export class OutageLog implements Disposable {
  readonly #server: string;
  readonly #log: Logger;
  /** By the name of the kind or path. */
  readonly #failures = new Map<string, Failure>();
  #timer: Timer | undefined;
  /** Since when the server does not answer. */
  #silentSinceMs: number | undefined;
  #loggedLevel: "none" | "warn" | "error" = "none";

  /** @param options.server as it is named in log lines: "the datastore" */
  constructor(options: { readonly server: string; readonly log?: Logger }) {
    this.#server = options.server;
    this.#log = options.log ?? silentLogger;
  }

  /** Time since every loop was known to be up to date; 0 while all are. */
  get viewAgeMs(): number {
    if (this.#failures.size === 0) return 0;
    return performance.now() - Math.min(...[...this.#failures.values()].map(({ sinceMs }) => sinceMs));
  }

  /**
   * @param name of the kind or path that could not be listed or watched
   * @param isOutage the failures have lasted so long that the syncer's status has changed to `wait-for-ready`
   */
  recordFailure(name: string, error: unknown, isOutage = false): void {
    const reason = describeError(error);
    const before = this.#failures.get(name);
    const hasAnswer = !(error instanceof Unavailable) || error.wasAnswered;
    const sinceMs = before?.sinceMs ?? performance.now() - (error instanceof Unavailable ? error.silentMs : 0);
    this.#failures.set(name, { sinceMs, hasAnswer, reason });
    this.#log.debug("list or watch failed", { name, error: reason });
    if (hasAnswer) {
      if (before?.hasAnswer !== true || before.reason !== reason)
        this.#log.warn("list or watch failed; retrying", { name, error: reason });
    } else this.#awaitAnswer(sinceMs);
    if (isOutage) this.#logOutage("error");
  }

  recordSuccess(name: string): void {
    const failure = this.#failures.get(name);
    if (failure === undefined) return;
    this.#failures.delete(name);
    if (failure.hasAnswer) this.#log.info("list and watch succeed again", { name });
    if ([...this.#failures.values()].some(({ hasAnswer }) => !hasAnswer)) return;
    this.#clearTimer();
    if (this.#loggedLevel !== "none") this.#log.info(`${this.#server} answers again`, { seconds: this.#silentSeconds });
    this.#loggedLevel = "none";
    this.#silentSinceMs = undefined;
  }

  [Symbol.dispose](): void {
    this.#clearTimer();
    this.#failures.clear();
  }

  get #silentSeconds(): number {
    return Math.round((performance.now() - (this.#silentSinceMs ?? performance.now())) / 1000);
  }

  #awaitAnswer(sinceMs: number): void {
    if (this.#silentSinceMs !== undefined && this.#silentSinceMs <= sinceMs) return;
    this.#silentSinceMs = sinceMs;
    this.#clearTimer();
    const remainingMs = Math.max(0, sinceMs + WARN_AFTER_MS - performance.now());
    this.#timer = setTimeout(() => this.#logOutage("warn"), remainingMs);
    this.#timer.unref();
  }

  #logOutage(level: "warn" | "error"): void {
    if (this.#loggedLevel === level || this.#loggedLevel === "error") return;
    this.#loggedLevel = level;
    const error = [...this.#failures.values()].at(-1)?.reason;
    const effect = level === "warn" ? "retrying" : "the view is out of date";
    this.#log[level](`no answer from ${this.#server}; ${effect}`, { seconds: this.#silentSeconds, error });
  }

  #clearTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
