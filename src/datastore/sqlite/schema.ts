// Creates the tables of a SQLite datastore, and migrates older files. `user_version` of a file is the number of migrations
// applied to it. A released migration never changes: add another one.
import { constants, type Database } from "bun:sqlite";
import { IncompatibleSchema } from "../errors.ts";

/** "cali" in ASCII: distinguishes the files of calico-ts from those of other programs. */
const APPLICATION_ID = 0x63616c69;

/**
 * `version` stores the values, with one immutable row per write, and is also the change log. `entry` refers from each
 * existing path to its current row. `previous` is the revision of the row that a write replaced (0 = none), so undoing rows
 * from newest to oldest gives any state that is not yet compacted. A row without a value is a deletion.
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

/** Rejects a file of another program or of a newer schema version. Writes nothing. */
export function checkSchema(db: Database, file: string, known = MIGRATIONS.length): void {
  // A single statement, so that all values are from the same moment: another process may be creating the file.
  const found = db
    .query<{ version: number; application: number; tables: number }, []>(
      `SELECT user_version AS version, application_id AS application, (SELECT count(*) FROM sqlite_schema) AS tables
       FROM pragma_user_version, pragma_application_id`,
    )
    .get();
  if (found === null) return;
  if (found.tables > 0 && found.application !== APPLICATION_ID)
    throw new IncompatibleSchema(file, found.version, known, "it is a SQLite file of another program");
  if (found.version > known) throw new IncompatibleSchema(file, found.version, known);
}

/** Migrates a file that passed `checkSchema` to the current schema, in one transaction. */
export function migrate(db: Database, migrations: readonly string[] = MIGRATIONS): void {
  if (userVersion(db) >= migrations.length) return;
  db.run("BEGIN IMMEDIATE");
  try {
    // Another process may have migrated the file while this one waited for the lock.
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
