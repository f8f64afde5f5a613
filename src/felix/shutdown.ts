// Shuts the process down. The first reason determines the exit code, unless a signal arrives later: then the code is 1.
// Programmed state stays in the kernel.
import { delay } from "../lib/retry.ts";

/** The supervisor restarts Felix immediately after this exit code. */
const EXIT_RESTART = 129;
const EXIT_FAILED = 1;
/** The shutdown did not complete in time, or a crash was simulated. */
export const EXIT_ABNORMAL = 2;

export interface ExitReason {
  readonly message: string;
  readonly code: number;
  /** Requested by a signal: exit without a pause. */
  readonly isImmediate: boolean;
}

export const restart = (message: string): ExitReason => ({ message, code: EXIT_RESTART, isImmediate: false });
export const failure = (message: string): ExitReason => ({ message, code: EXIT_FAILED, isImmediate: false });
export const stopSignal = (name: string): ExitReason => ({
  message: `received ${name}`,
  code: EXIT_FAILED,
  isImmediate: true,
});

export interface ShutdownTimes {
  /** Pause before the exit, so that a failing agent does not restart in a tight loop. */
  readonly pauseMs: number;
  /** Maximum time from the first request to the exit. */
  readonly limitMs: number;
}
const TIMES: ShutdownTimes = { pauseMs: 2000, limitMs: 30_000 };

export class Shutdown {
  readonly #times: ShutdownTimes;
  readonly #controller = new AbortController();
  #first: ExitReason | undefined;
  #resolveFirst: (reason: ExitReason) => void = () => {};
  readonly #requested = new Promise<ExitReason>((resolve) => (this.#resolveFirst = resolve));
  #endPause: () => void = () => {};

  constructor(times: Partial<ShutdownTimes> = {}) {
    this.#times = { ...TIMES, ...times };
  }

  /** Aborts when the shutdown starts. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  request(reason: ExitReason): void {
    if (this.#first !== undefined) {
      // A signal ends the pause; other later reasons are ignored.
      if (reason.isImmediate) {
        this.#first = { ...this.#first, code: EXIT_FAILED };
        this.#endPause();
      }
      return;
    }
    this.#first = reason;
    this.#resolveFirst(reason);
    this.#controller.abort(new Error(reason.message));
  }

  /**
   * Waits for a request, then for all tasks to end.
   * @param stopped resolves when all tasks that use the signal have ended
   * @returns the exit code
   */
  async finish(stopped: () => Promise<void>, onReason: (reason: ExitReason) => void): Promise<number> {
    const reason = await this.#requested;
    onReason(reason);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<"timeout">((resolve) => (timer = setTimeout(resolve, this.#times.limitMs, "timeout")));
    const inOrder = (async () => {
      const pauseEnded = new Promise<void>((resolve) => (this.#endPause = resolve));
      const pause = reason.isImmediate ? Promise.resolve() : Promise.race([pauseEnded, delay(this.#times.pauseMs)]);
      await Promise.all([stopped(), pause]);
      return "stopped" as const;
    })();
    const outcome = await Promise.race([inOrder, timeout]);
    clearTimeout(timer);
    return outcome === "timeout" ? EXIT_ABNORMAL : (this.#first ?? reason).code;
  }
}
