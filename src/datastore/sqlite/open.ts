// Opens a SQLite datastore. The driver is loaded only then.
import type { Datastore, Revision } from "../datastore.ts";
import type { SqliteOptions } from "./sqlite-datastore.ts";

/** Deletes the history up to a revision. The driver also does this automatically for old revisions. */
export interface Compactable {
  compact(revision: Revision): Promise<void>;
}

/** Opens the file, and creates or migrates it if necessary. */
export async function openSqlite(file: string, options: SqliteOptions = {}): Promise<Datastore & Compactable> {
  return (await import("./sqlite-datastore.ts")).openSqliteFile(file, options);
}

/** Opens a datastore in memory, which is not shared. */
export async function openSqliteInMemory(options: SqliteOptions = {}): Promise<Datastore & Compactable> {
  return (await import("./sqlite-datastore.ts")).openSqliteMemory(options);
}
