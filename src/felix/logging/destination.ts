// Writes log lines to a destination without blocking Felix. Each destination has a short queue. When the queue is full,
// lines are dropped and counted; the next written line is preceded by the number of dropped lines.

const QUEUE_LIMIT = 100;

export interface LineWriter {
  /** Calls `done` when the next text can be written. */
  write(text: string, done: (failed: boolean) => void): void;
  /** Writes synchronously, before the process exits. */
  writeSync(text: string): void;
}

export class LogDestination {
  readonly #writer: LineWriter;
  readonly #mayDrop: boolean;
  readonly #counts: { dropped(): void; failed(): void };
  #queue: string[] = [];
  #dropped = 0;
  #isWriting = false;

  constructor(
    writer: LineWriter,
    options: { readonly mayDrop: boolean; readonly counts: { dropped(): void; failed(): void } },
  ) {
    this.#writer = writer;
    this.#mayDrop = options.mayDrop;
    this.#counts = options.counts;
  }

  line(text: string): void {
    if (this.#mayDrop && this.#queue.length >= QUEUE_LIMIT) {
      this.#dropped++;
      this.#counts.dropped();
      return;
    }
    if (this.#dropped > 0) {
      this.#queue.push(`... dropped ${this.#dropped} logs ...\n`);
      this.#dropped = 0;
    }
    this.#queue.push(`${text}\n`);
    this.#next();
  }

  /** Writes all queued lines synchronously, before the process exits. */
  flush(): void {
    const text = this.#queue.join("");
    this.#queue = [];
    if (text !== "") this.#writer.writeSync(text);
  }

  #next(): void {
    if (this.#isWriting || this.#queue.length === 0) return;
    const text = this.#queue.join("");
    this.#queue = [];
    this.#isWriting = true;
    this.#writer.write(text, (failed) => {
      this.#isWriting = false;
      if (failed) this.#counts.failed();
      this.#next();
    });
  }
}
