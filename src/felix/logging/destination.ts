// Where log lines go, without ever making the agent wait: each destination has a short queue, and when it is full lines
// are dropped and counted, and the next line that gets through says how many.

const QUEUE_LIMIT = 100;

export interface LineWriter {
  /** Calls back when there is room for the next. */
  write(text: string, done: (failed: boolean) => void): void;
  /** For the last words of a process. */
  writeNow(text: string): void;
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

  /** Everything that waits, before the process ends. */
  flush(): void {
    const text = this.#queue.join("");
    this.#queue = [];
    if (text !== "") this.#writer.writeNow(text);
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
