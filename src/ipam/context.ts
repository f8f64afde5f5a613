// Defines the context that every IPAM operation receives (datastore, optional cache, clock, logger), and retries on conflicts.
import type { Datastore } from "../datastore/index.ts";
import { Conflict, NotFound } from "../datastore/index.ts";
import type { Cidr } from "../lib/ip/ip.ts";
import type { Logger } from "../lib/log/log.ts";
import { backoffDelay, delay } from "../lib/retry.ts";
import type { AssignmentCache } from "./assign/assignment-cache.ts";
import { type AssignmentReads, DatastoreReads } from "./assign/assignment-reads.ts";
import { RetriesExhausted } from "./errors.ts";
import { Records, type StoredBlock } from "./records.ts";

export interface IpamOptions {
  readonly datastore: Datastore;
  readonly log: Logger;
  readonly nowMs: () => number;
  readonly random: () => number;
  /** By default every decision reads the datastore. */
  readonly cache?: AssignmentCache;
}

export class Context {
  readonly records: Records;
  /** Reads from the datastore, not from the cache. */
  readonly reads: AssignmentReads;
  readonly log: Logger;
  constructor(
    readonly options: IpamOptions,
    readonly signal?: AbortSignal,
  ) {
    this.records = new Records(options.datastore, signal === undefined ? {} : { signal }, options.cache);
    this.reads = new DatastoreReads(this.records);
    this.log = options.log;
  }

  get nowMs(): number {
    return this.options.nowMs();
  }

  /** Returns a block of this host from the cache or, if it is not cached, from the datastore. */
  async ownBlock(cidr: Cidr): Promise<StoredBlock | undefined> {
    return this.options.cache?.block(cidr) ?? this.records.block(cidr);
  }

  /** Returns a context for writes that clean up after a failure; they continue after the caller's signal has aborted. */
  forCleanUp(): Context {
    return new Context(this.options, AbortSignal.timeout(30_000));
  }
}

/** True if another process has written or deleted the object since it was read. */
export const isConflict = (error: unknown): boolean => error instanceof Conflict || error instanceof NotFound;

const ATTEMPTS = 100;
const BACKOFF = { firstMs: 1, maxMs: 50, jitter: 1 };

/** Repeats `attempt` until it returns a value. Undefined means a conflict: the next attempt must read again. */
export async function retryOnConflict<T>(
  context: Context,
  what: string,
  attempt: (number: number) => Promise<T | undefined>,
): Promise<T> {
  for (let number = 0; number < ATTEMPTS; number++) {
    const result = await attempt(number);
    if (result !== undefined) return result;
    // The first retry is immediate, because most conflicts are between two processes.
    if (number > 0) await delay(backoffDelay({ ...BACKOFF, random: context.options.random }, number), context.signal);
  }
  throw new RetriesExhausted(what);
}
