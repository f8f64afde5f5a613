// Runs the SQL statements of the SQLite datastore, on paths and JSON text, synchronously. The driver converts keys and
// values, and waits for locks. Every write is one transaction and one revision.
import type { Database, Statement } from "bun:sqlite";
import { Compacted } from "../errors.ts";
import { futureRevision } from "../revision.ts";
import type { PathRange } from "../codec.ts";
import type { StoredRow } from "../rows.ts";

/** One write, as recorded in the change log; `value` null = a deletion, `previous` null = the path did not exist. */
export interface Change {
  readonly path: string;
  readonly revision: number;
  readonly value: string | null;
  readonly previousRevision: number;
  readonly previous: string | null;
}
export interface ChangeLog {
  readonly changes: readonly Change[];
  readonly scanned: number;
}
export type WriteOutcome =
  | { readonly done: true; readonly revision: number; readonly previous: StoredRow | undefined }
  /** The condition did not hold; nothing was written. */
  | { readonly done: false; readonly current: StoredRow | undefined };

export interface WriteRequest {
  readonly path: string;
  /** Null = delete. */
  readonly value: string | null;
  readonly expiresAt: number | null;
  /** Wait for the disk, so that the write survives a power failure. */
  readonly durable: boolean;
  readonly allow: (current: StoredRow | undefined) => boolean;
}

/** Number of changes that stay readable: a watch that is further behind must list again. */
const KEPT_CHANGES = 20_000;
/** Number of writes between compactions. */
const COMPACTION_INTERVAL = 256;
/** Limit per compaction, so that no single write takes long. */
const MAX_COMPACTED_REVISIONS = 1024;
/** As a suffix, sorts after every path with the same prefix. */
const MAX_CODE_POINT = "\u{10FFFF}";

export class VersionStore {
  readonly #db: Database;
  readonly #now: () => number;
  readonly #keptChanges: number;
  readonly #statements: Statements;
  #durable: boolean | undefined;

  constructor(db: Database, options: { readonly now?: () => number; readonly keptChanges?: number } = {}) {
    this.#db = db;
    this.#now = options.now ?? Date.now;
    this.#keptChanges = options.keptChanges ?? KEPT_CHANGES;
    this.#statements = prepare(db);
  }

  revision(): number {
    return this.#statements.revision.get()?.revision ?? 0;
  }

  compacted(): number {
    return this.#statements.compacted.get()?.revision ?? 0;
  }

  write(request: WriteRequest): WriteOutcome {
    this.#setDurable(request.durable);
    return this.#inTransaction("begin", () => {
      this.#deleteExpired();
      const current = this.#statements.get.get(request.path) ?? undefined;
      if (!request.allow(current)) return { done: false, current };
      return { done: true, revision: this.#write(request, current), previous: current };
    });
  }

  /** Applies all requests or none; `refused` contains the positions of the requests whose condition did not hold. */
  writeAll(
    requests: readonly WriteRequest[],
  ): { readonly done: true; readonly revisions: number[] } | { readonly done: false; readonly refused: number[] } {
    this.#setDurable(requests.some((request) => request.durable));
    return this.#inTransaction("begin", () => {
      this.#deleteExpired();
      const current = requests.map(({ path }) => this.#statements.get.get(path) ?? undefined);
      const refused = requests.flatMap((request, i) => (request.allow(current[i]) ? [] : [i]));
      if (refused.length > 0) return { done: false, refused };
      return { done: true, revisions: requests.map((request, i) => this.#write(request, current[i])) };
    });
  }

  #write(request: WriteRequest, current: StoredRow | undefined): number {
    const s = this.#statements;
    const revision = s.insert.get(request.path, current?.revision ?? 0, request.value)?.revision ?? 0;
    if (request.value === null) s.remove.run(request.path);
    else s.upsertEntry.run(request.path, revision, request.expiresAt);
    if (revision % COMPACTION_INTERVAL === 0) this.#compactTo(revision - this.#keptChanges, MAX_COMPACTED_REVISIONS);
    return revision;
  }

  get(path: string, at: number): StoredRow | undefined {
    if (at !== 0) return this.#listAt({ start: path, exact: true, accepts: () => true }, at).rows[0];
    return this.#statements.getUnexpired.get(path, this.#now()) ?? undefined;
  }

  list(range: PathRange, at: number): { readonly rows: readonly StoredRow[]; readonly revision: number } {
    return at === 0 ? this.#listNow(range) : this.#listAt(range, at);
  }

  /** Returns at most `limit` changes after a revision; `scanned` is the last revision that was read. */
  changes(range: PathRange, after: number, limit: number): ChangeLog {
    return this.#inTransaction("read", () => {
      const newest = this.revision();
      if (after > newest || after < this.compacted()) throw new Compacted(String(after));
      if (after === newest) return { changes: [], scanned: after };
      const changes = this.#statements.changes.all(after, range.start, endOf(range), limit);
      return { changes, scanned: changes.length < limit ? newest : (changes.at(-1)?.revision ?? newest) };
    });
  }

  /** Deletes expired entries. Returns whether there were any. */
  expire(): boolean {
    if (this.#statements.expired.get(this.#now()) === null) return false;
    this.#setDurable(false);
    return this.#inTransaction("begin", () => this.#deleteExpired());
  }

  /** Deletes rows that were replaced, and deletions, up to a revision. */
  compact(revision: number): void {
    this.#setDurable(false);
    this.#inTransaction("begin", () => this.#compactTo(Math.min(revision, this.revision() - 1), Infinity));
  }

  #listNow(range: PathRange): { rows: readonly StoredRow[]; revision: number } {
    return this.#inTransaction("read", () => {
      const revision = this.revision();
      return { rows: this.#statements.list.all(range.start, endOf(range), this.#now()), revision };
    });
  }

  /** Starts from the present entries and undoes all later changes. */
  #listAt(range: PathRange, at: number): { rows: readonly StoredRow[]; revision: number } {
    return this.#inTransaction("read", () => {
      const s = this.#statements;
      const newest = this.revision();
      if (at > newest) throw futureRevision(at, newest);
      if (at < this.compacted()) throw new Compacted(String(at));
      const end = endOf(range);
      const revisions = new Map(s.entries.all(range.start, end).map((e) => [e.path, e.revision]));
      for (const undone of s.undo.iterate(at, range.start, end)) {
        if (undone.previous === 0) revisions.delete(undone.path);
        else revisions.set(undone.path, undone.previous);
      }
      const rows = [...revisions.values()].flatMap((revision) => s.version.get(revision) ?? []);
      return { rows: rows.sort((a, b) => (a.path < b.path ? -1 : 1)), revision: newest };
    });
  }

  #deleteExpired(): boolean {
    const s = this.#statements;
    let isDeleted = false;
    for (const { path, revision } of s.allExpired.all(this.#now())) {
      s.insert.get(path, revision, null);
      s.remove.run(path);
      isDeleted = true;
    }
    return isDeleted;
  }

  #compactTo(target: number, maxRevisions: number): void {
    const from = this.compacted();
    const to = Math.min(target, from + maxRevisions);
    if (to <= from) return;
    const s = this.#statements;
    s.deleteReplaced.run(from, to);
    s.deleteTombstones.run(from, to);
    s.setCompacted.run(to);
  }

  #setDurable(durable: boolean): void {
    if (this.#durable === durable) return;
    this.#db.run(`PRAGMA synchronous = ${durable ? "FULL" : "NORMAL"}`);
    this.#durable = durable;
  }

  #inTransaction<T>(kind: "begin" | "read", work: () => T): T {
    const s = this.#statements;
    s[kind].run();
    try {
      const result = work();
      s.commit.run();
      return result;
    } catch (error) {
      if (this.#db.inTransaction) s.rollback.run();
      throw error;
    }
  }
}

const endOf = (range: PathRange): string => (range.exact ? `${range.start}\0` : range.start + MAX_CODE_POINT);

interface Statements {
  readonly begin: Statement<unknown, []>;
  readonly read: Statement<unknown, []>;
  readonly commit: Statement<unknown, []>;
  readonly rollback: Statement<unknown, []>;
  readonly revision: Statement<{ revision: number }, []>;
  readonly compacted: Statement<{ revision: number }, []>;
  readonly get: Statement<StoredRow, [string]>;
  readonly getUnexpired: Statement<StoredRow, [string, number]>;
  readonly list: Statement<StoredRow, [string, string, number]>;
  readonly entries: Statement<{ path: string; revision: number }, [string, string]>;
  readonly version: Statement<StoredRow, [number]>;
  readonly undo: Statement<{ path: string; previous: number }, [number, string, string]>;
  readonly changes: Statement<Change, [number, string, string, number]>;
  readonly insert: Statement<{ revision: number }, [string, number, string | null]>;
  readonly upsertEntry: Statement<unknown, [string, number, number | null]>;
  readonly remove: Statement<unknown, [string]>;
  readonly expired: Statement<unknown, [number]>;
  readonly allExpired: Statement<{ path: string; revision: number }, [number]>;
  readonly deleteReplaced: Statement<unknown, [number, number]>;
  readonly deleteTombstones: Statement<unknown, [number, number]>;
  readonly setCompacted: Statement<unknown, [number]>;
}

/** Each statement is compiled when it is first used, so that a short program compiles only what it needs. */
function prepare(db: Database): Statements {
  const sql: Record<keyof Statements, string> = {
    begin: "BEGIN IMMEDIATE",
    read: "BEGIN",
    commit: "COMMIT",
    rollback: "ROLLBACK",
    revision: "SELECT max(revision) AS revision FROM version",
    compacted: "SELECT revision FROM compaction",
    get: "SELECT v.path, v.value, v.revision FROM entry e JOIN version v USING (revision) WHERE e.path = ?",
    getUnexpired: `SELECT v.path, v.value, v.revision FROM entry e JOIN version v USING (revision)
      WHERE e.path = ? AND (e.expires IS NULL OR e.expires > ?)`,
    list: `SELECT v.path, v.value, v.revision FROM entry e CROSS JOIN version v USING (revision)
      WHERE e.path >= ? AND e.path < ? AND (e.expires IS NULL OR e.expires > ?) ORDER BY e.path`,
    entries: "SELECT path, revision FROM entry WHERE path >= ? AND path < ?",
    version: "SELECT path, value, revision FROM version WHERE revision = ?",
    undo: "SELECT path, previous FROM version WHERE revision > ? AND path >= ? AND path < ? ORDER BY revision DESC",
    changes: `SELECT v.path, v.revision, v.value, v.previous AS previousRevision, p.value AS previous
      FROM version v LEFT JOIN version p ON p.revision = v.previous
      WHERE v.revision > ? AND v.path >= ? AND v.path < ? ORDER BY v.revision LIMIT ?`,
    insert: "INSERT INTO version (path, previous, value) VALUES (?, ?, ?) RETURNING revision",
    upsertEntry: `INSERT INTO entry (path, revision, expires) VALUES (?, ?, ?)
      ON CONFLICT (path) DO UPDATE SET revision = excluded.revision, expires = excluded.expires`,
    remove: "DELETE FROM entry WHERE path = ?",
    expired: "SELECT 1 FROM entry WHERE expires <= ? LIMIT 1",
    allExpired: "SELECT path, revision FROM entry WHERE expires <= ?",
    deleteReplaced: `DELETE FROM version WHERE revision IN
      (SELECT previous FROM version WHERE revision > ? AND revision <= ? AND previous > 0)`,
    deleteTombstones: "DELETE FROM version WHERE revision > ? AND revision <= ? AND value IS NULL",
    setCompacted: "UPDATE compaction SET revision = ?",
  };
  const statements: Partial<Record<keyof Statements, Statement>> = {};
  const get = (name: keyof Statements) => (statements[name] ??= db.prepare(sql[name]));
  return new Proxy({} as Statements, { get: (_target, name) => get(name as keyof Statements) });
}
