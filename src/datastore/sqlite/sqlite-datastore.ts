// Implements the embedded datastore: one SQLite file in WAL mode, shared by all processes of a host, or a database in
// memory for tests. A written resource survives a power failure. The last writes about running workloads (endpoints,
// addresses, status) may be lost in a power failure, which ends the workloads too; they do not wait for the disk.
import { Database } from "bun:sqlite";
import { accessSync, closeSync, constants, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import type { StoredKey, StoredQuery } from "../../model/index.ts";
import { encodeValue, pathOf, rangeOf } from "../codec.ts";
import type {
  CallOptions,
  Datastore,
  DeleteOptions,
  Entry,
  KeyOfQuery,
  ListOptions,
  ListResult,
  ReadOptions,
  Removed,
  Revision,
  Stored,
  TransactionResult,
  Watch,
  Write,
} from "../datastore.ts";
import { AlreadyExists, NotFound, Unavailable, type UnreadableEntry } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { parseRevision, requireRevision } from "../revision.ts";
import { decodeIfReadable, decodeRow, decodeRows, type StoredRow, swapFailure } from "../rows.ts";
import { BLOCKING_WAIT_MS, isBusy, retryBusy } from "./busy.ts";
import { describeFileError } from "./file-error.ts";
import { CommitSignal } from "./commit-signal.ts";
import { checkSchema, migrate, OPEN_FLAGS } from "./schema.ts";
import { VersionStore, type WriteOutcome, type WriteRequest } from "./version-store.ts";
import { SqliteWatch } from "./watch.ts";

export interface SqliteOptions {
  /** Called for each stored entry that cannot be parsed. */
  readonly onUnreadable?: (error: UnreadableEntry) => void;
  /** Does not create the file. */
  readonly mustExist?: boolean;
  /** Limit of the time that an operation waits for the lock. */
  readonly timeoutMs?: number;
  readonly now?: () => number;
  /** Number of changes that stay readable for watches and historical reads. */
  readonly keptChanges?: number;
  /** Receives the database in memory, for tests that access it directly. */
  readonly onOpen?: (db: Database) => void;
}

const TIMEOUT_MS = 10_000;

/** Opens the file, and creates (unless it must exist) or migrates it if necessary. */
export async function openSqliteFile(file: string, options: SqliteOptions = {}): Promise<SqliteDatastore> {
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  try {
    if (options.mustExist !== true) {
      mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
      createWithPrivateMode(file);
    }
    accessSync(file, constants.R_OK | constants.W_OK); // SQLite's own error does not contain the reason
  } catch (error) {
    throw new Unavailable(file, describeFileError(error, options), { cause: error });
  }
  return retryBusy({ file, timeoutMs }, () => {
    const db = new Database(file, OPEN_FLAGS);
    try {
      db.run(`PRAGMA busy_timeout = ${BLOCKING_WAIT_MS}`);
      checkSchema(db, file);
      db.run("PRAGMA journal_mode = WAL");
      migrate(db);
      return new SqliteDatastore(db, file, options);
    } catch (error) {
      db.close();
      throw error;
    }
  });
}

/**
 * SQLite would create the file with read permission for all users. An existing file must not be opened here: closing any
 * descriptor of it would release SQLite's locks (https://sqlite.org/howtocorrupt.html, 2.2).
 */
function createWithPrivateMode(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  }
}

/** Opens a datastore in memory, which is not shared. */
export function openSqliteMemory(options: SqliteOptions = {}): SqliteDatastore {
  const db = new Database(":memory:");
  migrate(db);
  options.onOpen?.(db);
  return new SqliteDatastore(db, undefined, options);
}

export class SqliteDatastore implements Datastore {
  readonly name = "sqlite";
  readonly #db: Database;
  readonly #file: string | undefined;
  readonly #store: VersionStore;
  readonly #signal: CommitSignal;
  readonly #options: SqliteOptions;

  constructor(db: Database, file: string | undefined, options: SqliteOptions) {
    this.#db = db;
    this.#file = file;
    this.#options = options;
    this.#store = new VersionStore(db, options);
    this.#signal = new CommitSignal({
      db,
      file: file === undefined ? undefined : `${file}-changed`,
      onPoll: () => this.#expire(),
    });
  }

  async create<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const outcome = await this.#write(entry.key, entry, (current) => current === undefined, options);
    if (outcome.done) return stored(entry, outcome.revision);
    throw new AlreadyExists(nameOfKey(entry.key), decodeIfReadable(entry.key, outcome.current));
  }

  async update<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const expected = requireRevision(entry.revision);
    const outcome = await this.#write(entry.key, entry, (current) => current?.revision === expected, options);
    if (outcome.done) return stored(entry, outcome.revision);
    throw swapFailure(entry.key, outcome.current);
  }

  async apply<K extends StoredKey>(entry: Entry<K>, options: CallOptions = {}): Promise<Stored<K>> {
    const outcome = await this.#write(entry.key, entry, () => true, options);
    return stored(entry, outcome.done ? outcome.revision : 0);
  }

  async delete<K extends StoredKey>(key: K, options: DeleteOptions = {}): Promise<Removed<K>> {
    const expected = parseRevision(options.revision);
    const allow = (current: StoredRow | undefined) =>
      current !== undefined && (expected === 0 || current.revision === expected);
    const outcome = await this.#write(key, undefined, allow, options);
    if (outcome.done && outcome.previous !== undefined)
      return decodeIfReadable(key, outcome.previous) ?? { key, revision: String(outcome.previous.revision) };
    throw swapFailure(key, outcome.done ? undefined : outcome.current);
  }

  async transact(writes: readonly Write[], options: CallOptions = {}): Promise<TransactionResult> {
    const requests = writes.map((write) => {
      if (write.op === "create") return this.#request(write.entry.key, write.entry, (current) => current === undefined);
      const expected = requireRevision(write.op === "delete" ? write.revision : write.entry.revision);
      const allow = (current: StoredRow | undefined): boolean => current?.revision === expected;
      return write.op === "delete"
        ? this.#request(write.key, undefined, allow)
        : this.#request(write.entry.key, write.entry, allow);
    });
    const outcome = await this.#busy(() => this.#store.writeAll(requests), options.signal);
    if (!outcome.done) return outcome;
    this.#signal.announce();
    return { done: true, revisions: outcome.revisions.map(String) };
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    const at = parseRevision(options.revision);
    const row = await this.#busy(() => this.#store.get(pathOf(key), at), options.signal);
    if (row === undefined) throw new NotFound(nameOfKey(key));
    return decodeRow(key, row);
  }

  async list<Q extends StoredQuery>(query: Q, options: ListOptions = {}): Promise<ListResult<KeyOfQuery<Q>>> {
    const at = parseRevision(options.revision);
    const range = rangeOf(query);
    const { rows, revision } = await this.#busy(() => this.#store.list(range, at), options.signal);
    return {
      items: decodeRows(range, rows, options.onUnreadable ?? this.#options.onUnreadable) as Stored<KeyOfQuery<Q>>[],
      revision: String(revision),
    };
  }

  async watch<Q extends StoredQuery>(
    query: Q,
    options: { readonly after?: Revision; readonly signal: AbortSignal },
  ): Promise<Watch<KeyOfQuery<Q>>> {
    const range = rangeOf(query);
    const after = parseRevision(options.after);
    const start =
      after === 0
        ? await this.#busy(() => this.#store.list(range, 0), options.signal)
        : { rows: undefined, revision: after };
    return new SqliteWatch<KeyOfQuery<Q>>({
      read: (cursor, limit) => this.#busy(() => this.#store.changes(range, cursor, limit), options.signal),
      commits: this.#signal,
      range,
      after: start.revision,
      initial: start.rows && (decodeRows(range, start.rows, this.#options.onUnreadable) as Stored<KeyOfQuery<Q>>[]),
      signal: options.signal,
    });
  }

  /** Deletes the history up to a revision. The driver also does this automatically for old revisions. */
  async compact(revision: Revision): Promise<void> {
    await this.#busy(() => this.#store.compact(parseRevision(revision)));
  }

  async close(): Promise<void> {
    this.#signal.close();
    this.#db.close();
  }

  async #write<K extends StoredKey>(
    key: K,
    entry: Entry<K> | undefined,
    allow: (current: StoredRow | undefined) => boolean,
    options: CallOptions,
  ): Promise<WriteOutcome> {
    const request = this.#request(key, entry, allow);
    const outcome = await this.#busy(() => this.#store.write(request), options.signal);
    if (outcome.done) this.#signal.announce();
    return outcome;
  }

  #request<K extends StoredKey>(
    key: K,
    entry: Entry<K> | undefined,
    allow: (current: StoredRow | undefined) => boolean,
  ): WriteRequest {
    const now = this.#options.now ?? Date.now;
    const ttl = entry?.ttlSeconds ?? 0;
    return {
      path: pathOf(key),
      value: entry === undefined ? null : encodeValue(key, entry.value),
      expiresAt: ttl > 0 ? now() + ttl * 1000 : null,
      durable: key.type === "resource" && key.kind !== "WorkloadEndpoint",
      allow,
    };
  }

  #busy<T>(work: () => T, signal?: AbortSignal): Promise<T> {
    const timeoutMs = this.#options.timeoutMs ?? TIMEOUT_MS;
    return retryBusy({ file: this.#file ?? ":memory:", timeoutMs, signal }, work);
  }

  #expire(): void {
    try {
      if (this.#store.expire()) this.#signal.announce();
    } catch (error) {
      if (!isBusy(error)) throw error; // another process is writing: the next poll tries again
    }
  }
}

const stored = <K extends StoredKey>(entry: Entry<K>, revision: number): Stored<K> => ({
  key: entry.key,
  value: entry.value,
  revision: String(revision),
});
