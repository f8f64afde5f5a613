import { expect, test } from "bun:test";
import { LegacyWatch } from "./legacy-watch.ts";

test("a table that somebody overwrote is read again; one overwritten all the time, for a twentieth of the time at most", () => {
  let now = 0;
  let changes = 0;
  const table = () => ({ isOverwritten: false, readMs: 100, resyncs: 0, queueResync: () => {} });
  const [busy, quiet] = [table(), table()];
  for (const each of [busy, quiet]) each.queueResync = () => void each.resyncs++;
  const watch = new LegacyWatch({ tables: [busy, quiet], onChange: () => changes++, now: () => now });
  const looks = Array.from({ length: 5 }, (_, second) => {
    now = second * 1000;
    watch.check();
    busy.isOverwritten = true;
    return busy.resyncs;
  });
  expect(looks).toEqual([0, 1, 1, 2, 2]); // reading takes a tenth of a second: every other second
  expect([quiet.resyncs, changes]).toEqual([0, 2]);
});
