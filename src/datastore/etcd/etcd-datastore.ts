// Implements the etcdv3 driver: Calico's paths and JSON, compare-and-swap by transaction, and leases for entries with a
// time to live.
import type { StoredKey, StoredQuery } from "../../model/index.ts";
import { encodeValue, type PathRange, pathOf, rangeOf } from "../codec.ts";
import type { EtcdConfig, OpenOptions } from "../config.ts";
import type {
  CallOptions,
  Datastore,
  DeleteOptions,
  Entry,
  KeyOfQuery,
  ListResult,
  ListOptions,
  ReadOptions,
  WatchOptions,
  Removed,
  Revision,
  Stored,
  TransactionResult,
  Watch,
  Write,
} from "../datastore.ts";
import { AlreadyExists, Compacted, NotFound } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { parseRevision, requireRevision } from "../revision.ts";
import { decodeIfReadable, decodeRow, decodeRows, swapFailure } from "../rows.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import type { EtcdApi, EtcdCall } from "./api.ts";
import { findEndpoints, type ResolveSrv } from "./endpoints.ts";
import { compareAndSwap } from "./compare-and-swap.ts";
import type { EtcdRow, Operation, RangeRequest, RangeResponse, TxnRequest } from "./messages.ts";
import { ReadBatch } from "./read-batch.ts";
import { EtcdWatch } from "./watch.ts";

const TIMEOUT_MS = 10_000;
/** Entries per request of a list: limits an answer to a few megabytes. */
const PAGE_SIZE = 5_000;
/** With `onPage`, smaller pages: the caller processes one while the next is in flight. */
const ON_PAGE_SIZE = 1_500;
/** The first page is smaller still, so that the caller can start early. */
const FIRST_ON_PAGE_SIZE = 500;

export interface EtcdOptions extends OpenOptions {
  readonly resolveSrv?: ResolveSrv;
  /** A watch requests a progress report after this time without a message, and fails after twice this time. */
  readonly silenceMs?: number;
}

/** Connects with the first request. Throws only for an invalid configuration, or if no endpoint is discovered. */
export async function openEtcd(config: EtcdConfig, options: EtcdOptions = {}): Promise<EtcdDatastore> {
  const endpoints = await findEndpoints(config, options.resolveSrv);
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  const api =
    options.oneShot === true
      ? new (await import("./gateway.ts")).GatewayEtcdApi(config, endpoints, timeoutMs)
      : new (await import("./grpc-api.ts")).GrpcEtcdApi(config, endpoints, { timeoutMs, silenceMs: options.silenceMs });
  return new EtcdDatastore(api, options);
}

export class EtcdDatastore implements Datastore {
  readonly name = "etcdv3";
  readonly #api: EtcdApi;
  readonly #reads: ReadBatch;
  readonly #onUnreadable: OpenOptions["onUnreadable"];
  readonly #beforeWrite: OpenOptions["beforeWrite"];

  constructor(api: EtcdApi, options: Pick<OpenOptions, "onUnreadable" | "beforeWrite"> = {}) {
    this.#api = api;
    this.#reads = new ReadBatch(api);
    this.#onUnreadable = options.onUnreadable;
    this.#beforeWrite = options.beforeWrite;
  }

  async create<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const key = pathOf(entry.key);
    const answer = await this.#compareAndSwap(
      {
        compare: [{ key, field: "version", equals: 0 }],
        success: [await this.#put(key, entry, options)],
        failure: [{ type: "range", range: { key } }],
      },
      options,
    );
    if (answer.succeeded) return { key: entry.key, value: entry.value, revision: String(answer.revision) };
    throw new AlreadyExists(nameOfKey(entry.key), decodeIfReadable(entry.key, answer.row));
  }

  async update<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const expected = requireRevision(entry.revision);
    const key = pathOf(entry.key);
    const answer = await this.#compareAndSwap(
      {
        compare: [{ key, field: "mod", equals: expected }],
        success: [await this.#put(key, entry, options)],
        failure: [{ type: "range", range: { key } }],
      },
      options,
    );
    if (answer.succeeded) return { key: entry.key, value: entry.value, revision: String(answer.revision) };
    throw swapFailure(entry.key, answer.row);
  }

  async apply<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const success = [await this.#put(pathOf(entry.key), entry, options)];
    this.#beforeWrite?.();
    const answer = await this.#api.txn(
      { compare: [], success, failure: [] },
      { ...signalOf(options), repeatable: true },
    );
    return { key: entry.key, value: entry.value, revision: String(answer.revision) };
  }

  async delete<K extends StoredKey>(key: K, options: DeleteOptions = {}): Promise<Removed<K>> {
    const expected = parseRevision(options.revision);
    const path = pathOf(key);
    const success = [{ type: "delete", delete: { key: path } } as const];
    if (expected === 0) {
      this.#beforeWrite?.();
      const request = { compare: [], success, failure: [] };
      const { rows } = await this.#api.txn(request, { ...signalOf(options), repeatable: false });
      return removedOf(key, rows[0]?.[0]);
    }
    const compare = [{ key: path, field: "mod", equals: expected } as const];
    const answer = await this.#compareAndSwap(
      { compare, success, failure: [{ type: "range", range: { key: path } }] },
      options,
    );
    if (!answer.succeeded) throw swapFailure(key, answer.row);
    return answer.row === undefined ? { key, revision: String(expected) } : removedOf(key, answer.row);
  }

  async transact(writes: readonly Write[], options: CallOptions = {}): Promise<TransactionResult> {
    const keys = writes.map((write) => pathOf(write.op === "delete" ? write.key : write.entry.key));
    const expected = writes.map(expectedRevision);
    const success = await Promise.all(
      writes.map((write, i): Operation | Promise<Operation> => {
        const key = keys[i] ?? "";
        return write.op === "delete" ? { type: "delete", delete: { key } } : this.#put(key, write.entry, options);
      }),
    );
    this.#beforeWrite?.();
    const answer = await compareAndSwap(
      this.#api,
      {
        compare: keys.map((key, i) => ({ key, field: "mod", equals: expected[i] ?? 0 }) as const), // 0 = the key does not exist
        success,
        failure: keys.map((key) => ({ type: "range", range: { key } })),
      },
      signalOf(options),
    );
    const revision = String(answer.revision);
    if (answer.succeeded) return { done: true, revisions: writes.map(() => revision) };
    const isConflicting = (i: number): boolean => (answer.rows[i]?.[0]?.revision ?? 0) !== expected[i];
    return { done: false, refused: [...writes.keys()].filter(isConflicting) };
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    const revision = parseRevision(options.revision);
    const { rows } = await this.#read({ key: pathOf(key), revision }, options);
    const [row] = rows;
    if (row === undefined) throw new NotFound(nameOfKey(key));
    return decodeRow(key, row);
  }

  async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    const at = parseRevision(options.revision);
    const range = rangeOf(query);
    const { items, revision } = await this.#list(range, at, options);
    return { items: items as Stored<KeyOfQuery<Q>>[], revision: String(revision) };
  }

  async watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>> {
    const range = rangeOf(query);
    const after = parseRevision(options.after);
    const initial = after === 0 ? await this.#list(range, 0, options) : undefined;
    const start = initial?.revision ?? after;
    const withPrevious = options.withoutPrevious !== true;
    const stream = await this.#api.openWatch(
      { ...span(range), startRevision: start + 1, withPrevious },
      options.signal,
    );
    if (stream.revision < start) {
      // The server was restored from a backup, and its revision is older than ours: changes up to ours would be missed.
      stream.close();
      throw new Compacted(String(start));
    }
    const items = initial?.items as Stored<KeyOfQuery<Q>>[] | undefined;
    return new EtcdWatch<KeyOfQuery<Q>>({ stream, range, after: start, initial: items });
  }

  /** Deletes the history up to a revision. */
  async compact(revision: Revision): Promise<void> {
    this.#beforeWrite?.();
    return this.#api.compact(parseRevision(revision), {});
  }

  close(): Promise<void> {
    return this.#api.close();
  }

  /** Reads all pages at the revision of the first one. Starts again if that revision is compacted meanwhile. */
  async #list(
    range: PathRange,
    at: number,
    options: Pick<ListOptions, "signal" | "onPage" | "onUnreadable">,
  ): Promise<{ items: Stored[]; revision: number }> {
    const { key: first, end } = span(range);
    const [firstLimit, limit] =
      options.onPage === undefined ? [PAGE_SIZE, PAGE_SIZE] : [FIRST_ON_PAGE_SIZE, ON_PAGE_SIZE];
    let isPagePassed = false;
    for (;;) {
      const items: Stored[] = [];
      let fixed = at;
      let revision = 0;
      const pageFrom = (key: string) =>
        this.#read({ key, limit: key === first ? firstLimit : limit, revision: fixed, ...(end && { end }) }, options);
      try {
        for (let next: Promise<RangeResponse> | undefined = pageFrom(first); next !== undefined; ) {
          const page: RangeResponse = await next;
          if (revision === 0) revision = page.revision;
          if (fixed === 0) fixed = page.revision;
          const last = page.rows.at(-1);
          next = page.more && last !== undefined ? pageFrom(`${last.path}\0`) : undefined;
          if (next !== undefined) {
            next.catch(() => {}); // awaited in the next iteration
            await yieldToEventLoop(); // sends the request, which is in flight while this page is decoded
          }
          const decoded = decodeRows(range, page.rows, options.onUnreadable ?? this.#onUnreadable);
          if (options.onPage === undefined) for (const item of decoded) items.push(item);
          else {
            isPagePassed = true;
            options.onPage(decoded);
          }
        }
        return { items, revision };
      } catch (error) {
        if (!(error instanceof Compacted) || at !== 0 || isPagePassed) throw error;
      }
    }
  }

  /** Batches reads of the newest revision. A read of an older revision may fail, so it is not put into a batch. */
  #read(request: RangeRequest, options: { readonly signal?: AbortSignal }): Promise<RangeResponse> {
    return (request.revision ?? 0) === 0 ? this.#reads.range(request, options) : this.#api.range(request, options);
  }

  async #put<K extends StoredKey>(key: string, entry: Entry<K>, options: CallOptions): Promise<Operation> {
    const ttl = entry.ttlSeconds ?? 0;
    const lease = ttl > 0 ? await this.#api.grantLease(Math.ceil(ttl), options) : undefined;
    const value = encodeValue(entry.key, entry.value);
    return { type: "put", put: { key, value, lease } };
  }

  /** Writes one key by compare-and-swap. */
  async #compareAndSwap(
    request: TxnRequest,
    options: CallOptions,
  ): Promise<{ succeeded: boolean; revision: number; row: EtcdRow | undefined }> {
    this.#beforeWrite?.();
    const { succeeded, revision, rows } = await compareAndSwap(this.#api, request, signalOf(options));
    return { succeeded, revision, row: rows[0]?.[0] };
  }
}

const signalOf = ({ signal }: CallOptions): EtcdCall => ({ signal });

function removedOf<K extends StoredKey>(key: K, row: EtcdRow | undefined): Removed<K> {
  if (row === undefined) throw new NotFound(nameOfKey(key));
  return decodeIfReadable(key, row) ?? { key, revision: String(row.revision) };
}

/** Returns the revision that the key must have before the write; 0 = the key must not exist. */
const expectedRevision = (write: Write): number =>
  write.op === "create" ? 0 : requireRevision(write.op === "delete" ? write.revision : write.entry.revision);

/** Returns the range in etcd's form: the end of a prefix is the prefix with its last byte increased by one. */
function span(range: PathRange): { readonly key: string; readonly end?: string } {
  if (range.exact) return { key: range.start };
  const last = range.start.charCodeAt(range.start.length - 1);
  // Names may end in any character. For one beyond ASCII, the increased code unit may not be the next in UTF-8 order.
  const end = last < 0x7f ? range.start.slice(0, -1) + String.fromCharCode(last + 1) : `${range.start}\u{10FFFF}`;
  return { key: range.start, end };
}
