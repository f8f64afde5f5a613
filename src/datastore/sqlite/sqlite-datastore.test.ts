import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Database } from "bun:sqlite";
import { parseCidr } from "../../lib/ip/ip.ts";
import type { Block, Resource, ResourceKey } from "../../model/index.ts";
import { AlreadyExists, Compacted, Conflict, IncompatibleSchema, NotFound, Unavailable } from "../errors.ts";
import type { WatchEvent } from "../datastore.ts";
import { openSqlite, openSqliteInMemory } from "./open.ts";
import { checkSchema, migrate } from "./schema.ts";

const key = (name: string): ResourceKey => ({ type: "resource", kind: "IPPool", name });
const pool = (name: string, cidr = "10.0.0.0/16"): Resource => ({
  apiVersion: "projectcalico.org/v3",
  kind: "IPPool",
  metadata: { name },
  spec: { cidr },
});
const entry = (name: string, cidr?: string) => ({ key: key(name), value: pool(name, cidr) });

function scratch(): { file: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), "datastore-sqlite-"));
  return {
    file: join(folder, "calico.db"),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

test("create, update, apply and delete each increase the revision by one, and compare it", async () => {
  const store = await openSqliteInMemory();
  const first = await store.create(entry("a"));
  await expect(store.create(entry("a"))).rejects.toBeInstanceOf(AlreadyExists);
  const second = await store.update({ ...entry("a", "10.1.0.0/16"), revision: first.revision });
  expect(Number(second.revision)).toBe(Number(first.revision) + 1);
  await expect(store.update({ ...entry("a"), revision: first.revision })).rejects.toBeInstanceOf(Conflict);
  await expect(store.update({ ...entry("b"), revision: "5" })).rejects.toBeInstanceOf(NotFound);
  await expect(store.delete(key("a"), { revision: first.revision })).rejects.toBeInstanceOf(Conflict);
  expect((await store.delete(key("a"))).value).toEqual(pool("a", "10.1.0.0/16"));
  await expect(store.get(key("a"))).rejects.toBeInstanceOf(NotFound);
  expect((await store.get(key("a"), { revision: first.revision })).value).toEqual(pool("a"));
});

test("a watch sees what another connection to the file commits within 50 ms", async () => {
  using dir = scratch();
  const reader = await openSqlite(dir.file);
  const writer = await openSqlite(dir.file);
  const aborter = new AbortController();
  const seen: { event: WatchEvent; at: number }[] = [];
  const watch = await reader.watch({ type: "resource", kind: "IPPool" }, { signal: aborter.signal });
  const { promise, resolve } = Promise.withResolvers<void>();
  const reading = (async () => {
    for await (const batch of watch) {
      for (const event of batch) seen.push({ event, at: performance.now() });
      if (seen.length >= 6) resolve();
    }
  })();
  const written: number[] = [];
  for (let i = 0; i < 5; i++) {
    await Bun.sleep(5);
    await writer.create(entry(`p${i}`));
    written.push(performance.now());
  }
  await promise;
  aborter.abort();
  await reading;
  expect(seen.map((s) => s.event.type)).toEqual(["bookmark", "added", "added", "added", "added", "added"]);
  const delays = written.map((at, i) => (seen[i + 1]?.at ?? 0) - at).sort((a, b) => a - b);
  expect(delays[2]).toBeLessThan(50);
  await reader.close();
  await writer.close();
});

test("a compacted revision ends a watch and fails a historical read, but not a read of the present state", async () => {
  const store = await openSqliteInMemory();
  const first = await store.create(entry("a"));
  await store.create(entry("kept"));
  const second = await store.update({ ...entry("a", "10.1.0.0/16"), revision: first.revision });
  await store.delete(key("a"));
  await store.create(entry("b"));
  await store.compact(second.revision);
  await expect(store.get(key("a"), { revision: first.revision })).rejects.toBeInstanceOf(Compacted);
  expect((await store.get(key("a"), { revision: second.revision })).value).toEqual(pool("a", "10.1.0.0/16"));
  const { items } = await store.list({ type: "resource", kind: "IPPool" });
  expect(items.map((i) => i.key.name)).toEqual(["b", "kept"]);
  const watch = await store.watch(
    { type: "resource", kind: "IPPool" },
    { after: first.revision, signal: new AbortController().signal },
  );
  await expect(watch[Symbol.asyncIterator]().next()).rejects.toBeInstanceOf(Compacted);
});

test("the log is compacted as it grows", async () => {
  const store = await openSqliteInMemory({ keptChanges: 100 });
  const first = await store.create(entry("a"));
  for (let i = 0; i < 2000; i++) await store.apply(entry(`p${i % 7}`, `10.${i % 200}.0.0/16`));
  await expect(store.list({ type: "resource", kind: "IPPool" }, { revision: first.revision })).rejects.toBeInstanceOf(
    Compacted,
  );
  expect((await store.list({ type: "resource", kind: "IPPool" })).items).toHaveLength(8);
});

test("an entry with a time to live expires and causes an event", async () => {
  let now = 1_000_000;
  const store = await openSqliteInMemory({ now: () => now });
  const status = { type: "felixStatus", region: "no-region", host: "h1", last: false } as const;
  await store.apply({ key: status, value: { time: "t", uptime: 1, firstUpdate: true }, ttlSeconds: 2 });
  const aborter = new AbortController();
  const watch = await store.watch({ type: "felixStatus" }, { signal: aborter.signal });
  const events = watch[Symbol.asyncIterator]();
  const types = async () => ((await events.next()).value as readonly WatchEvent[]).map((event) => event.type);
  expect(await types()).toEqual(["added", "bookmark"]);
  expect((await store.get(status)).value.uptime).toBe(1);
  now += 2000;
  await expect(store.get(status)).rejects.toBeInstanceOf(NotFound);
  expect(await types()).toEqual(["deleted"]);
  aborter.abort();
});

test("64-bit sequence numbers keep their exact value", async () => {
  const store = await openSqliteInMemory();
  const cidr = parseCidr("10.0.0.0/30");
  const block: Block = {
    cidr,
    affinity: "host:h1",
    allocations: [0, null, null, null],
    unallocated: [1, 2, 3],
    attributes: [{ handleId: "h", secondary: { node: "h1" } }],
    sequenceNumber: 18446744073709551615n,
    sequenceNumberForAllocation: { 0: 9007199254740993n },
    deleted: false,
  };
  await store.create({ key: { type: "block", cidr }, value: block });
  expect((await store.get({ type: "block", cidr })).value).toEqual(block);
});

test("the file is private; a file with a newer schema is rejected and not changed", async () => {
  using dir = scratch();
  const store = await openSqlite(dir.file);
  await store.create(entry("a"));
  await store.close();
  expect(statSync(dir.file).mode & 0o777).toBe(0o600);
  const db = new Database(dir.file);
  db.run("PRAGMA user_version = 99");
  db.close();
  await expect(openSqlite(dir.file)).rejects.toBeInstanceOf(IncompatibleSchema);
});

test("a file of another program is rejected and not changed, whatever its version", async () => {
  for (const version of [0, 1, 99]) {
    using dir = scratch();
    const db = new Database(dir.file);
    db.run("CREATE TABLE theirs (x)");
    db.run(`PRAGMA user_version = ${version}`);
    db.close();
    const before = readFileSync(dir.file);
    await expect(openSqlite(dir.file)).rejects.toThrow(/another program/);
    expect(readFileSync(dir.file).equals(before)).toBe(true);
  }
});

test("a file with an older schema is migrated in place; the older program then rejects it", async () => {
  using dir = scratch();
  const store = await openSqlite(dir.file);
  const { revision } = await store.create(entry("a"));
  await store.close();
  const db = new Database(dir.file);
  const known = db.query<{ user_version: number }, []>("PRAGMA user_version").get()?.user_version ?? 0;
  const newer = [...Array.from({ length: known }, () => "SELECT 1"), "ALTER TABLE entry ADD COLUMN owner TEXT"];
  checkSchema(db, dir.file, newer.length);
  migrate(db, newer);
  migrate(db, newer); // the second call changes nothing
  expect(db.query("SELECT owner, revision FROM entry").all()).toContainEqual({
    owner: null,
    revision: Number(revision),
  });
  db.close();
  const refusal = await openSqlite(dir.file).catch((error: unknown) => error as Error);
  expect(refusal).toBeInstanceOf(IncompatibleSchema);
  expect(String(refusal)).toContain(
    `it has schema version ${known + 1}, this program supports versions up to ${known}`,
  );
});

test("a migration that fails leaves the file as it was", async () => {
  using dir = scratch();
  await (await openSqlite(dir.file)).close();
  const db = new Database(dir.file);
  const version = () => db.query<{ user_version: number }, []>("PRAGMA user_version").get()?.user_version ?? 0;
  const known = version();
  const broken = [...Array.from({ length: known }, () => ""), "CREATE TABLE extra (x)", "no SQL at all"];
  expect(() => migrate(db, broken)).toThrow();
  expect(version()).toBe(known);
  expect(db.query("SELECT name FROM sqlite_schema WHERE name = 'extra'").all()).toEqual([]);
  db.close();
});

test("a file is not created if it must exist", async () => {
  using place = scratch();
  for (const file of [place.file, join(place.file, "a/b.db")]) {
    const failure = await openSqlite(file, { mustExist: true }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(Unavailable);
    expect(String(failure)).toContain(`datastore ${file} is unavailable: there is no such file; the node agent or`);
    expect(existsSync(place.file)).toBeFalse();
  }
  await (await openSqlite(place.file)).close();
  await (await openSqlite(place.file, { mustExist: true })).close();
});

test("the error for a file that cannot be created contains its name", async () => {
  const failure = await openSqlite("/proc/nowhere/calico.db").catch((error: unknown) => error as Error);
  expect(failure).toBeInstanceOf(Unavailable);
  expect(String(failure)).toContain("datastore /proc/nowhere/calico.db is unavailable: ENOENT");
});

test("a full disk is reported, loses no data, and writes succeed when there is space again", async () => {
  let db: Database | undefined;
  const store = await openSqliteInMemory({ onOpen: (opened) => (db = opened) });
  await store.create(entry("a"));
  const { page_count } = db!.query<{ page_count: number }, []>("PRAGMA page_count").get()!;
  db!.run(`PRAGMA max_page_count = ${page_count}`);
  const large = { key: key("b"), value: { ...pool("b"), spec: { note: "x".repeat(100_000) } } };
  const error = await store.create(large).then(
    () => undefined,
    (thrown: unknown) => thrown as Error,
  );
  expect(error).toBeInstanceOf(Unavailable);
  expect(error?.message).toContain("full");
  expect((await store.list({ type: "resource", kind: "IPPool" })).items.map((item) => item.key.name)).toEqual(["a"]);
  db!.run("PRAGMA max_page_count = 1000000");
  await store.create(large);
});
