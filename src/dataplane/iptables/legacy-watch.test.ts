import { expect, test } from "bun:test";
import { LegacyWatch } from "./legacy-watch.ts";

test("an overwritten table is read again, but reading takes at most a twentieth of the time", () => {
  let nowMs = 0;
  let changes = 0;
  const table = () => ({ isOverwritten: false, readMs: 100, resyncs: 0, queueResync: () => {} });
  const [busy, quiet] = [table(), table()];
  for (const each of [busy, quiet]) each.queueResync = () => void each.resyncs++;
  const watch = new LegacyWatch({ tables: [busy, quiet], onChange: () => changes++, nowMs: () => nowMs });
  const resyncs = Array.from({ length: 5 }, (_, second) => {
    nowMs = second * 1000;
    watch.check();
    busy.isOverwritten = true;
    return busy.resyncs;
  });
  expect(resyncs).toEqual([0, 1, 1, 2, 2]); // a read takes 100 ms, so the next one is 2 s later
  expect([quiet.resyncs, changes]).toEqual([0, 2]);
});
