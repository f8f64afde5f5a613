// Converts rows (a path, its JSON text, a revision) to typed entries and events, for the drivers that store the layout of
// `codec.ts` (SQLite, etcd).
import type { StoredKey } from "../model/index.ts";
import { decodeValue, type PathRange, parsePath } from "./codec.ts";
import type { Stored, WatchEvent } from "./datastore.ts";
import { Conflict, NotFound, UnreadableEntry } from "./errors.ts";
import { nameOfKey } from "./key-name.ts";

export interface StoredRow {
  readonly path: string;
  readonly value: string;
  readonly revision: number;
}

/** One write, as recorded in a change log. */
export interface RowChange {
  readonly path: string;
  readonly revision: number;
  /** Null = deleted. */
  readonly value: string | null;
  readonly isNew: boolean;
  /** The replaced row, if the log still contains it. */
  readonly previous?: Pick<StoredRow, "value" | "revision">;
}

/** @throws UnreadableEntry */
export function decodeRow<K extends StoredKey>(key: K, row: StoredRow): Stored<K> {
  return { key, value: decodeValue(key, row.path, row.value), revision: String(row.revision) };
}

export function decodeIfReadable<K extends StoredKey>(key: K, row: StoredRow | undefined): Stored<K> | undefined {
  if (row === undefined) return undefined;
  try {
    return decodeRow(key, row);
  } catch (error) {
    if (error instanceof UnreadableEntry) return undefined;
    throw error;
  }
}

/** Returns the entries that match the query. Entries that cannot be parsed are reported and left out. */
export function decodeRows(
  range: PathRange,
  rows: readonly StoredRow[],
  onUnreadable: ((error: UnreadableEntry) => void) | undefined,
): Stored[] {
  const items: Stored[] = [];
  for (const row of rows) {
    const key = parsePath(row.path);
    if (key === undefined || !range.accepts(key)) continue;
    try {
      items.push(decodeRow(key, row));
    } catch (error) {
      if (!(error instanceof UnreadableEntry)) throw error;
      onUnreadable?.(error);
    }
  }
  return items;
}

/** Returns the error of a compare-and-swap that did not match. */
export function swapFailure(key: StoredKey, current: StoredRow | undefined): Conflict | NotFound {
  if (current === undefined) return new NotFound(nameOfKey(key));
  return new Conflict(nameOfKey(key), decodeIfReadable(key, current));
}

/** Returns the first events of a watch: all existing entries, then a bookmark with the revision of this state. */
export function snapshotEvents<K extends StoredKey>(items: readonly Stored<K>[], revision: number): WatchEvent<K>[] {
  const events = items.map((item): WatchEvent<K> => ({ type: "added", item, revision: item.revision }));
  events.push({ type: "bookmark", revision: String(revision) });
  return events;
}

/** Returns the event of a change, or undefined if the query does not match the key. */
export function changeEvent<K extends StoredKey>(range: PathRange, change: RowChange): WatchEvent<K> | undefined {
  const { path, value } = change;
  const key = parsePath(path) as K | undefined;
  if (key === undefined || !range.accepts(key)) return undefined;
  const revision = String(change.revision);
  const replaced = change.previous && decodeIfReadable(key, { path, ...change.previous });
  const previous = replaced === undefined ? {} : { previous: replaced };
  if (value === null) return { type: "deleted", key, revision, ...previous };
  try {
    const item = decodeRow(key, { path, value, revision: change.revision });
    return change.isNew ? { type: "added", item, revision } : { type: "modified", item, revision, ...previous };
  } catch (error) {
    if (error instanceof UnreadableEntry) return { type: "error", error, revision };
    throw error;
  }
}
