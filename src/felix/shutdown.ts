// Why and how the process ends. The first reason counts; what the kernel enforces stays in place.
import { delay } from "../lib/retry.ts";

/** The supervisor starts an agent that ends so again at once. */
const EXIT_RESTART = 129;
const EXIT_FAILED = 1;
/** Could not even end in order. */
export const EXIT_STUCK = 2;

export interface EndReason {
  readonly text: string;
  readonly code: number;
  /** Asked for from outside: no pause before the end. */
  readonly isImmediate: boolean;
}

export const restart = (text: string): EndReason => ({ text, code: EXIT_RESTART, isImmediate: false });
export const failure = (text: string): EndReason => ({ text, code: EXIT_FAILED, isImmediate: false });
export const stopSignal = (name: string): EndReason => ({ text: `got ${name}`, code: EXIT_FAILED, isImmediate: true });

export interface ShutdownTimes {
  /** A pause that keeps a failing agent from spinning. */
  readonly pauseMs: number;
  /** Longest time from the first reason to the end. */
  readonly limitMs: number;
}
const TIMES: ShutdownTimes = { pauseMs: 2000, limitMs: 30_000 };

export class Shutdown {
  readonly #times: ShutdownTimes;
  readonly #controller = new AbortController();
  #first: EndReason | undefined;
  #resolveFirst: (reason: EndReason) => void = () => {};
  readonly #requested = new Promise<EndReason>((resolve) => (this.#resolveFirst = resolve));
  #cutPause: () => void = () => {};

  constructor(times: Partial<ShutdownTimes> = {}) {
    this.#times = { ...TIMES, ...times };
  }

  /** Aborts when the end begins. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  request(reason: EndReason): void {
    if (this.#first !== undefined) {
      // A signal cuts the pause short; any other later reason is old news.
      if (reason.isImmediate) {
        this.#first = { ...this.#first, code: EXIT_FAILED };
        this.#cutPause();
      }
      return;
    }
    this.#first = reason;
    this.#resolveFirst(reason);
    this.#controller.abort(new Error(reason.text));
  }

  /**
   * Waits for a reason, then for everything to stop.
   * @param stopped resolves when all that hears the signal has ended
   * @returns the exit code
   */
  async finish(stopped: () => Promise<void>, onReason: (reason: EndReason) => void): Promise<number> {
    const reason = await this.#requested;
    onReason(reason);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stuck = new Promise<"stuck">((resolve) => (timer = setTimeout(resolve, this.#times.limitMs, "stuck")));
    const inOrder = (async () => {
      const cut = new Promise<void>((resolve) => (this.#cutPause = resolve));
      const pause = reason.isImmediate ? Promise.resolve() : Promise.race([cut, delay(this.#times.pauseMs)]);
      await Promise.all([stopped(), pause]);
      return "stopped" as const;
    })();
    const outcome = await Promise.race([inOrder, stuck]);
    clearTimeout(timer);
    return outcome === "stuck" ? EXIT_STUCK : (this.#first ?? reason).code;
  }
}
