// What every operation is given: the records it reads and writes, a clock, and where to say what happened.
import type { Datastore } from "../datastore/index.ts";
import { Conflict, NotFound } from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import { backoffDelay, delay } from "../lib/retry.ts";
import { RetriesExhausted } from "./errors.ts";
import type { Memory } from "./memory.ts";
import { Records } from "./records.ts";

export interface IpamOptions {
  readonly datastore: Datastore;
  readonly log: Logger;
  readonly nowMs: () => number;
  readonly random: () => number;
  readonly memory: Memory;
}

export class Context {
  readonly records: Records;
  readonly log: Logger;
  constructor(
    readonly options: IpamOptions,
    readonly signal?: AbortSignal,
  ) {
    this.records = new Records(options.datastore, signal === undefined ? {} : { signal });
    this.log = options.log;
  }

  get memory(): Memory {
    return this.options.memory;
  }

  get nowMs(): number {
    return this.options.nowMs();
  }

  /** Works by what is remembered where the datastore lets a write be bound to it, and by what it says otherwise. */
  attempt<T>(work: (context: Context) => Promise<T>): Promise<T> {
    const { datastore, memory } = this.options;
    return memory.recall.attempt(datastore, (store) =>
      work(store === datastore ? this : new Context({ ...this.options, datastore: store }, this.signal)),
    );
  }

  /** What was decided so far was decided by what is so now; otherwise `attempt` begins again. */
  settle(): Promise<void> {
    return this.memory.recall.settle(this.records.store);
  }

  /** The same, for writes that tidy up after a failure: they outlive a caller that has given up. */
  forCleanUp(): Context {
    return new Context(this.options, AbortSignal.timeout(30_000));
  }
}

/** Somebody else wrote the object first, or removed it: read again. */
export const isLost = (error: unknown): boolean => error instanceof Conflict || error instanceof NotFound;

const ATTEMPTS = 100;
const BACKOFF = { firstMs: 1, maxMs: 50, jitter: 1 };

/** Runs `attempt` until it gives a value; undefined means somebody was faster and it should look again. */
export async function untilWon<T>(
  context: Context,
  what: string,
  attempt: (number: number) => Promise<T | undefined>,
): Promise<T> {
  for (let number = 0; number < ATTEMPTS; number++) {
    const result = await attempt(number);
    if (result !== undefined) return result;
    // The first retry is immediate: most races are between two.
    if (number > 0) await delay(backoffDelay({ ...BACKOFF, random: context.options.random }, number), context.signal);
  }
  throw new RetriesExhausted(what);
}
