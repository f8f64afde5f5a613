// Many processes on one datastore, one operation at a time in an order that a seed decides, each of which may die
// before or after any of its writes. Deterministic: the same seed gives the same run.
import { MemoryDatastore, type Operation } from "./memory-datastore.ts";

/** What a dead process gets from every operation: it must not be able to do anything more. */
export class Crash extends Error {
  override readonly name = "Crash";
}

export interface CrashPoint {
  /** Counted over the process's writes. */
  readonly write: number;
  readonly effective: boolean;
}

export class Schedule {
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 1;
  }

  /** A connection whose operations wait for their turn, and which dies where told. */
  connect(store: MemoryDatastore, crash?: CrashPoint): MemoryDatastore {
    const client = store.connect(this.#random(2) === 0); // with and without transactions
    let writes = 0;
    let dead = false;
    const dies = (operation: Operation, effective: boolean) =>
      isWrite(operation) && crash !== undefined && writes === crash.write && crash.effective === effective;
    client.before = async (operation) => {
      if (dead) throw new Crash();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
      if (dead) throw new Crash();
      if (isWrite(operation)) writes++;
      dead = dies(operation, false);
      if (dead) throw new Crash();
    };
    client.after = (operation) => {
      dead = dies(operation, true);
      if (dead) throw new Crash();
    };
    return client;
  }

  /** Runs the processes to their end, letting one waiting operation through at a time. */
  async run(processes: readonly (() => Promise<void>)[]): Promise<void> {
    this.#running = processes.length;
    const all = Promise.all(processes.map((process) => process().finally(() => this.#running--)));
    all.catch(() => {});
    while (this.#running > 0) {
      await new Promise((resolve) => setImmediate(resolve));
      const [next] = this.#waiting.splice(this.#random(this.#waiting.length), 1);
      if (next !== undefined) next();
      else await new Promise((resolve) => setTimeout(resolve, 0));
    }
    await all;
  }

  #random(below: number): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return below === 0 ? 0 : (this.#state >>> 8) % below;
  }
}

const isWrite = (operation: Operation): boolean => operation.name !== "get" && operation.name !== "list";
