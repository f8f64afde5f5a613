// The tables of an embedded datastore file, and how older files become current ones. `user_version` of the file is
// the number of migrations it has seen. A migration, once released, never changes: add another.
import { constants, type Database } from "bun:sqlite";
import { IncompatibleSchema } from "../errors.ts";

/** "cali": tells our files from anybody else's. */
const APPLICATION_ID = 0x63616c69;

/**
 * Values live in `version`, one row per write, never changed afterwards: the change log and the values are the same
 * rows. `entry` points from each living path to its current row. `previous` is the row a write replaced (0 = none), so
 * undoing rows newest to oldest gives any state that is not yet compacted. A row without a value is a deletion.
 */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE version (
     revision INTEGER PRIMARY KEY,
     path TEXT NOT NULL,
     previous INTEGER NOT NULL,
     value TEXT
   );
   CREATE TABLE entry (
     path TEXT PRIMARY KEY,
     revision INTEGER NOT NULL,
     expires INTEGER
   ) WITHOUT ROWID;
   CREATE INDEX entry_expiry ON entry (expires) WHERE expires IS NOT NULL;
   CREATE TABLE compaction (revision INTEGER NOT NULL);
   INSERT INTO compaction VALUES (0);
   INSERT INTO version VALUES (1, '', 0, NULL);`,
];

/** Refuses a file that is not ours, or that a newer program has already changed; nothing is written. */
export function checkSchema(db: Database, file: string, known = MIGRATIONS.length): void {
  // One statement, one moment: another process may be making the file right now.
  const found = db
    .query<{ version: number; application: number; tables: number }, []>(
      `SELECT user_version AS version, application_id AS application, (SELECT count(*) FROM sqlite_schema) AS tables
       FROM pragma_user_version, pragma_application_id`,
    )
    .get();
  if (found === null) return;
  if (found.tables > 0 && found.application !== APPLICATION_ID)
    throw new IncompatibleSchema(file, found.version, known, "it is an SQLite file of another program");
  if (found.version > known) throw new IncompatibleSchema(file, found.version, known);
}

/** Brings a file that passed `checkSchema` to the current schema, in one transaction. */
export function migrate(db: Database, migrations: readonly string[] = MIGRATIONS): void {
  if (userVersion(db) >= migrations.length) return;
  db.run("BEGIN IMMEDIATE");
  try {
    // Another process may have migrated while we waited for the lock.
    for (let from = userVersion(db); from < migrations.length; from++) {
      db.run(migrations[from] ?? "");
      db.run(`PRAGMA user_version = ${from + 1}`);
    }
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
    db.run("COMMIT");
  } catch (error) {
    if (db.inTransaction) db.run("ROLLBACK");
    throw error;
  }
}

export const OPEN_FLAGS = constants.SQLITE_OPEN_READWRITE | constants.SQLITE_OPEN_CREATE;

function userVersion(db: Database): number {
  return db.query<{ user_version: number }, []>("PRAGMA user_version").get()?.user_version ?? 0;
}
