// Runs many simulated processes on one datastore, one operation at a time, in an order determined by a seed. Each process may
// crash before or after any of its writes. The same seed gives the same run.
import { MemoryDatastore, type Operation } from "./memory-datastore.ts";

/** Thrown by every operation of a crashed process, so that it cannot do anything more. */
export class Crash extends Error {
  override readonly name = "Crash";
}

export interface CrashPoint {
  /** The number of the process's write, counted from 1. */
  readonly write: number;
  /** True: crash after the write took effect; false: before. */
  readonly effective: boolean;
}

export class Schedule {
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 1;
  }

  /** Returns a connection whose operations wait until the schedule selects them, and which crashes at `crash`. */
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

  /** Runs the processes to their end. Lets one waiting operation proceed at a time. */
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
