import { expect, test } from "bun:test";
import fc from "fast-check";
import type { SyncerUpdate } from "../datastore/index.ts";
import { FrameReader, MAX_SERVER_FRAME } from "./protocol.ts";
import { SnapshotCache } from "./snapshot-cache.ts";

const update = (name: string, label: string | undefined, change: SyncerUpdate["change"] = "updated"): SyncerUpdate =>
  ({
    key: { type: "networkSet", name },
    value: label === undefined ? undefined : { nets: [], labels: { label }, profileIds: [] },
    change: label === undefined ? "deleted" : change,
  }) as SyncerUpdate;

/** Path and value of each record of an updates frame. */
function recordsOf(frame: Buffer): [string, string][] {
  const reader = new FrameReader({ maxFrame: MAX_SERVER_FRAME, allowCompressed: true });
  reader.push(frame);
  const items = JSON.parse(reader.next()!.payload.toString()) as unknown[];
  return Array.from({ length: items.length / 4 }, (_, i) => [
    items[4 * i + 1] as string,
    JSON.stringify(items[4 * i + 3]),
  ]);
}

/** All entries of the cache, read as for a new client. */
function snapshot(cache: SnapshotCache, compress = true): Map<string, string> {
  const state = new Map<string, string>();
  let path = "";
  let oldest = cache.head.sequence;
  for (let leaf = cache.leafAfter(path); leaf !== undefined; leaf = cache.leafAfter(path)) {
    const { bytes, sequence } = cache.leafFrame(leaf, compress);
    for (const [at, value] of recordsOf(bytes)) state.set(at, value);
    oldest = Math.min(oldest, sequence);
    path = leaf.entries.at(-1)!.path;
  }
  for (const crumb of cache.crumbsAfter(oldest) ?? [])
    for (const { path: changed, value } of crumb.changes)
      if (value === undefined) state.delete(changed);
      else state.set(changed, value);
  return state;
}

test("TC-T06 a snapshot contains all updates, for any number of leaves and any order", () =>
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(3000), fc.option(fc.nat(5))), { maxLength: 6000, size: "max" }), (changes) => {
      const cache = new SnapshotCache();
      const wanted = new Map<string, number>();
      for (const [i, value] of changes) {
        cache.onUpdates([update(`s${i}`, value === null ? undefined : String(value))]);
        if (value === null) wanted.delete(`/calico/v1/netset/s${i}`);
        else wanted.set(`/calico/v1/netset/s${i}`, value);
        if (i % 97 === 0) cache.publish();
      }
      cache.publish();
      const state = new Map([...snapshot(cache)].map(([path, text]) => [path, Number(JSON.parse(text).labels.label)]));
      expect(state).toEqual(wanted);
      expect(cache.size).toBe(wanted.size);
      cache.close();
    }),
    { numRuns: 20 },
  ));

test("TC-T06 crumbs lead from any recent state to the present one; of older states the deletions are kept", () => {
  const cache = new SnapshotCache({ maxBatch: 10 });
  cache.onUpdates([update("gone", "x")]);
  cache.publish();
  const early = cache.head.sequence;
  cache.onUpdates([update("gone", undefined)]);
  cache.publish();
  for (let i = 0; i < 3000; i++) {
    cache.onUpdates([update(`s${i % 50}`, String(i))]);
    cache.publish();
  }
  expect(cache.crumbsAfter(cache.head.sequence)).toEqual([]);
  expect(cache.crumbsAfter(cache.head.sequence - 2)).toHaveLength(2);
  expect(cache.crumbsAfter(early)).toBeUndefined();
  expect(cache.hasDeletionsAfter(early)).toBe(true);
  expect(cache.deletionsAfter(early).map(({ path }) => path)).toEqual(["/calico/v1/netset/gone"]);
  cache.close();
});

test("TC-T06 deletions are dropped after a time, and hasDeletionsAfter reports it", () => {
  let now = 0;
  const cache = new SnapshotCache({ now: () => now, memoryMs: 1000 });
  cache.onUpdates([update("a", "x")]);
  cache.publish();
  const early = cache.head.sequence;
  cache.onUpdates([update("a", undefined)]);
  cache.publish();
  now = 2000;
  cache.onUpdates([update("b", "x")]);
  cache.publish();
  expect(cache.hasDeletionsAfter(early)).toBe(false);
  expect(cache.hasDeletionsAfter(cache.head.sequence)).toBe(true);
  cache.close();
});

test("TC-T07 an update without a change is skipped; a deletion or creation never is", () => {
  const cache = new SnapshotCache();
  cache.onUpdates([update("a", "x", "new")]);
  cache.publish();
  const { sequence } = cache.head;
  cache.onUpdates([update("a", "x")]);
  cache.publish();
  expect(cache.head.sequence).toBe(sequence);
  expect(cache.counts.skipped).toBe(1);
  cache.onUpdates([update("a", "x", "new"), update("never-there", undefined)]);
  cache.publish();
  expect(cache.crumbsAfter(sequence)![0]!.changes.map(({ path, change }) => [path, change])).toEqual([
    ["/calico/v1/netset/a", "new"],
    ["/calico/v1/netset/never-there", "deleted"],
  ]);
  cache.close();
});

test("TC-T07 a change and its reversal within one batch are both published", () => {
  const cache = new SnapshotCache();
  cache.onUpdates([update("a", "x")]);
  cache.publish();
  cache.onUpdates([update("a", "y"), update("a", "x")]);
  cache.publish();
  expect(JSON.parse(snapshot(cache).get("/calico/v1/netset/a")!).labels).toEqual({ label: "x" });
  cache.close();
});

test("TC-T07 a new revision of an unchanged resource is not a change", () => {
  const cache = new SnapshotCache();
  const node = (resourceVersion: string): SyncerUpdate =>
    ({
      key: { type: "resource", kind: "Node", name: "n" },
      value: { apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name: "n", resourceVersion }, spec: {} },
      revision: resourceVersion,
      change: "updated",
    }) as SyncerUpdate;
  cache.onUpdates([node("1")]);
  cache.publish();
  cache.onUpdates([node("2")]);
  expect(cache.counts.skipped).toBe(1);
  cache.close();
});

test("TC-T07 only the last crumb of a batch has the new status, and a status alone is published too", () => {
  const cache = new SnapshotCache({ maxBatch: 10 });
  const start = cache.head.sequence;
  cache.onUpdates(Array.from({ length: 25 }, (_, i) => update(`s${i}`, "x")));
  cache.onStatus("in-sync");
  cache.publish();
  expect(cache.crumbsAfter(start)!.map(({ changes, status }) => [changes.length, status])).toEqual([
    [10, "wait-for-ready"],
    [10, "wait-for-ready"],
    [5, "in-sync"],
  ]);
  cache.onStatus("resync");
  cache.publish();
  expect(cache.head.status).toBe("resync");
  expect(cache.crumbsAfter(start)).toHaveLength(4);
  cache.close();
});

test("TC-T12 parts of a snapshot are encoded once and shared, and encoded again only after many changes", () => {
  let now = 0;
  const cache = new SnapshotCache({ now: () => now, maxBatch: 10_000 });
  const name = (i: number) => `s${String(i).padStart(5, "0")}`;
  cache.onUpdates(Array.from({ length: 5000 }, (_, i) => update(name(i), "x")));
  cache.publish();
  const first = snapshot(cache);
  const made = cache.counts.framesMade;
  expect(made).toBeGreaterThan(3);
  expect(snapshot(cache)).toEqual(first);
  expect(cache.counts.framesMade).toBe(made);
  expect(cache.counts.framesReused).toBe(made);
  now = 5000;
  cache.onUpdates([update(name(7), "changed")]);
  cache.publish();
  expect(snapshot(cache).get(`/calico/v1/netset/${name(7)}`)).toContain("changed");
  expect(cache.counts.framesMade).toBe(made);
  cache.onUpdates(Array.from({ length: 900 }, (_, i) => update(name(i), "changed")));
  cache.publish();
  snapshot(cache);
  expect(cache.counts.framesMade).toBe(made + 1);
  cache.close();
});

test("a plain and a compressed snapshot have the same content", () => {
  const cache = new SnapshotCache();
  cache.onUpdates(Array.from({ length: 500 }, (_, i) => update(`s${i}`, "ü€😀".repeat(i % 7))));
  cache.publish();
  expect(snapshot(cache, false)).toEqual(snapshot(cache, true));
  expect(cache.counts.packedBytes).toBeLessThan(cache.counts.rawBytes);
  cache.close();
});

test("frames and kept crumbs are limited in bytes, whatever the order of large values", () => {
  const names = Array.from({ length: 50 }, (_, i) => `s${(i * 37) % 50}`);
  const large = (name: string) => update(name, name.padEnd(1_400_000, "x"));
  const cache = new SnapshotCache();
  cache.onUpdates(names.map(large));
  cache.publish();
  const frames: number[] = [];
  let path = "";
  for (let leaf = cache.leafAfter(path); leaf !== undefined; leaf = cache.leafAfter(path)) {
    frames.push(cache.leafFrame(leaf, false).bytes.length);
    path = leaf.entries.at(-1)!.path;
  }
  for (const crumb of cache.crumbsAfter(cache.head.sequence - 1)!) frames.push(crumb.frame.bytes(false).length);
  expect(Math.max(...frames)).toBeLessThan(6_000_000);
  expect(snapshot(cache).size).toBe(50);
  // 70 MB of changes: the oldest are no longer kept, and a client that needs them gets the changed entries.
  expect(cache.crumbsAfter(1)).toBeUndefined();
  const kept = cache.crumbsAfter(cache.head.sequence - 5)!;
  expect(kept.length).toBe(5);
  cache.close();
});
