// The light way in: the driver itself is loaded only by who opens a file.
import type { Datastore, Revision } from "../datastore.ts";
import type { SqliteOptions } from "./sqlite-datastore.ts";

/** Forgets history up to a revision, as the driver does by itself for what is old. */
export interface Compactable {
  compact(revision: Revision): Promise<void>;
}

/** Opens the file, creating or migrating it when needed. */
export async function openSqlite(file: string, options: SqliteOptions = {}): Promise<Datastore & Compactable> {
  return (await import("./sqlite-datastore.ts")).openSqliteFile(file, options);
}

/** The same in memory, seen by this object alone. */
export async function openSqliteInMemory(options: SqliteOptions = {}): Promise<Datastore & Compactable> {
  return (await import("./sqlite-datastore.ts")).openSqliteMemory(options);
}
