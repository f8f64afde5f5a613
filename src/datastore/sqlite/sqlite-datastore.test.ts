import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Database } from "bun:sqlite";
import { parseCidr } from "../../lib/ip.ts";
import type { Block, Resource, ResourceKey } from "../../model/index.ts";
import { AlreadyExists, Compacted, Conflict, IncompatibleSchema, NotFound } from "../errors.ts";
import type { WatchEvent } from "../datastore.ts";
import { openSqlite, openSqliteInMemory } from "./open.ts";

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

test("create, update, apply and delete move one revision each and compare", async () => {
  const store = await openSqliteInMemory();
  const first = await store.create(entry("a"));
  expect(store.create(entry("a"))).rejects.toBeInstanceOf(AlreadyExists);
  const second = await store.update({ ...entry("a", "10.1.0.0/16"), revision: first.revision });
  expect(Number(second.revision)).toBe(Number(first.revision) + 1);
  expect(store.update({ ...entry("a"), revision: first.revision })).rejects.toBeInstanceOf(Conflict);
  expect(store.update({ ...entry("b"), revision: "5" })).rejects.toBeInstanceOf(NotFound);
  expect(store.delete(key("a"), { revision: first.revision })).rejects.toBeInstanceOf(Conflict);
  expect((await store.delete(key("a"))).value).toEqual(pool("a", "10.1.0.0/16"));
  expect(store.get(key("a"))).rejects.toBeInstanceOf(NotFound);
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

test("a compacted revision ends the watch and refuses the historical read; the present stays", async () => {
  const store = await openSqliteInMemory();
  const first = await store.create(entry("a"));
  await store.create(entry("kept"));
  const second = await store.update({ ...entry("a", "10.1.0.0/16"), revision: first.revision });
  await store.delete(key("a"));
  await store.create(entry("b"));
  await store.compact(second.revision);
  expect(store.get(key("a"), { revision: first.revision })).rejects.toBeInstanceOf(Compacted);
  expect((await store.get(key("a"), { revision: second.revision })).value).toEqual(pool("a", "10.1.0.0/16"));
  const { items } = await store.list({ type: "resource", kind: "IPPool" });
  expect(items.map((i) => i.key.name)).toEqual(["b", "kept"]);
  const watch = await store.watch(
    { type: "resource", kind: "IPPool" },
    { after: first.revision, signal: new AbortController().signal },
  );
  expect(watch[Symbol.asyncIterator]().next()).rejects.toBeInstanceOf(Compacted);
});

test("the log is compacted as it grows", async () => {
  const store = await openSqliteInMemory({ keptChanges: 100 });
  const first = await store.create(entry("a"));
  for (let i = 0; i < 2000; i++) await store.apply(entry(`p${i % 7}`, `10.${i % 200}.0.0/16`));
  expect(store.list({ type: "resource", kind: "IPPool" }, { revision: first.revision })).rejects.toBeInstanceOf(
    Compacted,
  );
  expect((await store.list({ type: "resource", kind: "IPPool" })).items).toHaveLength(8);
});

test("values with a time to live vanish, with an event", async () => {
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
  expect(store.get(status)).rejects.toBeInstanceOf(NotFound);
  expect(await types()).toEqual(["deleted"]);
  aborter.abort();
});

test("64-bit sequence numbers survive", async () => {
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

test("the file is private, and one of a newer program is refused untouched", async () => {
  using dir = scratch();
  const store = await openSqlite(dir.file);
  await store.create(entry("a"));
  await store.close();
  expect(statSync(dir.file).mode & 0o777).toBe(0o600);
  const db = new Database(dir.file);
  db.run("PRAGMA user_version = 99");
  db.close();
  expect(openSqlite(dir.file)).rejects.toBeInstanceOf(IncompatibleSchema);
});

test("a file of another program is refused", async () => {
  using dir = scratch();
  const db = new Database(dir.file);
  db.run("CREATE TABLE theirs (x)");
  db.close();
  expect(openSqlite(dir.file)).rejects.toThrow(/another program/);
});
