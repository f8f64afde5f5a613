// Tests a SQLite file that several processes write: eight of them increment a counter by compare-and-swap, and one is
// killed meanwhile.
import { Database } from "bun:sqlite";
import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqlite } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { EventLog } from "./contract.ts";
import { pool, poolKey } from "./entries.ts";

const PROCESSES = 8;
const EACH = 60;
const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function scratchFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "contract-processes-"));
  folders.push(folder);
  return join(folder, "calico.db");
}

function startWriter(file: string, increments: number) {
  const command = [process.execPath, join(import.meta.dir, "sqlite-writer.ts"), file, String(increments)];
  return Bun.spawn(command, { stdout: "pipe", stderr: "inherit" });
}

test("with eight writers and a SIGKILL, every acknowledged increment is stored exactly once", async () => {
  const file = scratchFile();
  const store = await openSqlite(file);
  await store.create({ ...pool("counter"), value: { ...pool("counter").value, spec: { count: 0 } } });
  await using log = await EventLog.open(
    store,
    { type: "resource", kind: "IPPool" },
    (await store.list({ type: "resource", kind: "IPPool" })).revision,
  );

  const writers = Array.from({ length: PROCESSES }, (_, i) => startWriter(file, i === 0 ? 1_000_000 : EACH));
  const victim = writers[0]!;
  const killing = (async () => {
    await eventually(() => log.events.length >= 100, 20_000);
    victim.kill("SIGKILL");
  })();
  const outputs = await Promise.all(writers.map((writer) => new Response(writer.stdout).text()));
  await killing;
  const codes = await Promise.all(writers.map((writer) => writer.exited));
  expect(codes.slice(1)).toEqual(Array.from({ length: PROCESSES - 1 }, () => 0));
  expect(victim.signalCode).toBe("SIGKILL");

  const acknowledged = outputs.map((text) => text.length).reduce((a, b) => a + b, 0);
  const { count } = (await store.get(poolKey("counter"))).value.spec as { count: number };
  // The killed process may have committed an increment that it did not acknowledge.
  expect(count - acknowledged).toBeOneOf([0, 1]);
  await log.until(count);
  const counts = log.events.map((event) =>
    "item" in event ? (event.item.value as { spec: { count: number } }).spec.count : -1,
  );
  expect(counts).toEqual(Array.from({ length: count }, (_, i) => i + 1));
  await store.close();
  const db = new Database(file);
  expect(db.query("PRAGMA integrity_check").get()).toEqual({ integrity_check: "ok" });
  db.close();
}, 60_000);

test("eight processes can create the same file at the same time", async () => {
  const file = scratchFile();
  const writers = Array.from({ length: PROCESSES }, () => startWriter(file, 3));
  expect(await Promise.all(writers.map((writer) => writer.exited))).toEqual(writers.map(() => 0));
  const store = await openSqlite(file);
  expect((await store.get(poolKey("counter"))).value.spec).toMatchObject({ count: PROCESSES * 3 });
  await store.close();
}, 60_000);

test("another process is notified of a commit within 50 ms, idle or not", async () => {
  const file = scratchFile();
  const store = await openSqlite(file);
  await using log = await EventLog.open(store, { type: "resource", kind: "IPPool" });
  await log.until(1);
  const writer = startWriter(file, 20);
  const text = await new Response(writer.stdout).text();
  expect(text).toHaveLength(20);
  await eventually(() => log.events.length >= 22, 2000); // bookmark, creation, 20 increments
  const delays = log.events.flatMap((event) => {
    const { at } = "item" in event ? (event.item.value as { spec: { at?: number } }).spec : {};
    return at === undefined ? [] : [(log.times.get(event) ?? 0) - at];
  });
  delays.sort((a, b) => a - b);
  expect(delays).toHaveLength(20);
  expect(delays[10]).toBeLessThan(50); // the median, because a busy machine may delay single events
  await store.close();
}, 30_000);
