import { Database } from "bun:sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqlite, openSqliteInMemory } from "../../src/datastore/index.ts";
import { contract } from "./contract.ts";

/** Writes directly to the tables, without the codec, as another program might. */
function putRaw(db: Database, path: string, text: string): void {
  db.transaction(() => {
    const current = db.query<{ revision: number }, [string]>("SELECT revision FROM entry WHERE path = ?").get(path);
    const { revision } = db
      .query<{ revision: number }, [string, number, string]>(
        "INSERT INTO version (path, previous, value) VALUES (?, ?, ?) RETURNING revision",
      )
      .get(path, current?.revision ?? 0, text)!;
    db.query("INSERT OR REPLACE INTO entry VALUES (?, ?, NULL)").run(path, revision);
  }).immediate();
}

contract({
  name: "sqlite",
  lacks: new Set(),
  start: async (onUnreadable) => {
    const folder = mkdtempSync(join(tmpdir(), "contract-sqlite-"));
    const file = join(folder, "calico.db");
    const store = await openSqlite(file, { onUnreadable });
    const other = await openSqlite(file);
    const raw = new Database(file);
    return {
      store,
      other,
      putRaw: async (path, text) => putRaw(raw, path, text),
      compact: (revision) => store.compact(revision),
      clear: async () => {
        raw.run("DELETE FROM entry");
      },
      stop: async () => {
        for (const open of [store, other]) await open.close();
        raw.close();
        rmSync(folder, { recursive: true });
      },
    };
  },
});

contract({
  name: "sqlite in memory",
  lacks: new Set(),
  start: async (onUnreadable) => {
    let raw: Database | undefined;
    const store = await openSqliteInMemory({ onUnreadable, onOpen: (db) => (raw = db) });
    return {
      store,
      other: store,
      putRaw: async (path, text) => putRaw(raw!, path, text),
      compact: (revision) => store.compact(revision),
      clear: async () => {
        raw?.run("DELETE FROM entry");
      },
      stop: () => store.close(),
    };
  },
});
