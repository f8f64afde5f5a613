// Recognizes the files of a SQLite datastore without opening the database.
import { closeSync, existsSync, openSync, readSync, statSync } from "node:fs";

/** https://sqlite.org/fileformat.html, 1.3.1 */
const HEADER = Buffer.from("SQLite format 3\0");
/** Suffixes of the files that SQLite and `commit-signal.ts` create next to the database. */
const SIDE_FILE = /-(wal|shm|journal|changed)$/;

/** The database to which a file belongs by its name: `calico.db` for `calico.db-wal` and for itself. */
export const databaseOf = (path: string): string => path.replace(SIDE_FILE, "");

/** Every file of the database that can exist. */
export const filesOfDatabase = (path: string): readonly string[] =>
  ["", "-wal", "-shm", "-journal", "-changed"].map((suffix) => `${path}${suffix}`);

/**
 * Returns whether a file is a SQLite database, of calico-ts or another program. Must not be called by a process that has
 * the database open: closing the descriptor would release its locks (https://sqlite.org/howtocorrupt.html, 2.2).
 */
export function isSqliteFile(path: string): boolean {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) return false; // opening a pipe would block
  if (existsSync(`${path}-wal`)) return true; // a new database may have all its data there
  const file = openSync(path, "r");
  try {
    const start = Buffer.alloc(HEADER.length);
    return readSync(file, start) === HEADER.length && start.equals(HEADER);
  } finally {
    closeSync(file);
  }
}
