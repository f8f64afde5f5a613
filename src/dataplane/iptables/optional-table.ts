// Wraps a table that the node works without: if it cannot be written, one warning is logged and the write is retried later.
import { describeError, type Logger } from "../../lib/log/log.ts";
import { type ApplyOutcome, FatalDataplaneError, type Reconciler } from "../loop/manager.ts";

const RETRY_MS = 60_000;

export class OptionalTable implements Reconciler {
  readonly name: string;
  readonly #table: Reconciler;
  readonly #log: Logger;
  #isFailureLogged = false;
  #retryAtMs = 0;

  constructor(table: Reconciler, logger: Logger) {
    this.name = table.name;
    this.#table = table;
    this.#log = logger;
  }

  queueResync(): void {
    this.#table.queueResync();
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    const now = performance.now();
    if (now < this.#retryAtMs) return { againInMs: this.#retryAtMs - now };
    try {
      const outcome = await this.#table.apply(signal);
      this.#isFailureLogged = false;
      return outcome;
    } catch (error) {
      if (!(error instanceof FatalDataplaneError)) throw error;
      if (!this.#isFailureLogged)
        this.#log.warn("table cannot be written; continuing without it", {
          part: this.name,
          error: describeError(error.cause ?? error),
        });
      this.#isFailureLogged = true;
      this.#retryAtMs = performance.now() + RETRY_MS;
      return { againInMs: RETRY_MS };
    }
  }
}
