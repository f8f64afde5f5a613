// For how long nobody has asked: when it is over, a service that was started on demand ends.

export class Idleness {
  readonly #now: () => number;
  #seconds: number;
  #since: number;
  #attended = 0;

  /** @param now in milliseconds, by a clock that is never set */
  constructor(seconds: number, now: () => number) {
    this.#seconds = seconds;
    this.#now = now;
    this.#since = now();
  }

  /**
   * Somebody is attended to until the result is disposed of.
   * @param seconds how long to wait for the next from then on; 0: who asks does not want to be waited for
   */
  attend(seconds: number): Disposable {
    if (seconds > 0) this.#seconds = seconds;
    this.#attended++;
    return {
      [Symbol.dispose]: () => {
        this.#attended--;
        if (seconds > 0) this.#since = this.#now();
      },
    };
  }

  get isOver(): boolean {
    return this.lasts(this.#seconds * 1000);
  }

  /** Whether nobody is attended to, nor was for so long. */
  lasts(ms: number): boolean {
    return this.#attended === 0 && this.#now() - this.#since >= ms;
  }
}
