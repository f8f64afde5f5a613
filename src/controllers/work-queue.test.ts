import { expect, test } from "bun:test";
import { createLogger, silentLogger } from "../lib/log/log.ts";
import { eventually } from "../lib/testing/eventually.ts";
import { WorkQueue } from "./work-queue.ts";

test("TC-K12 a key that fails is retried five times, and then not until it is added again", async () => {
  const stop = new AbortController();
  const lines: string[] = [];
  let tries = 0;
  const queue = new WorkQueue({
    name: "test",
    work: async () => {
      tries++;
      throw new Error("no");
    },
    log: createLogger({ level: "error", write: ({ message }) => void lines.push(message) }),
    backoff: { firstMs: 1, maxMs: 2 },
  });
  const running = queue.run(stop.signal);
  queue.add("a");
  await eventually(() => queue.isIdle && tries > 0);
  expect([tries, lines.length]).toEqual([6, 1]);
  queue.add("a"); // as the periodic comparison does
  await eventually(() => queue.isIdle && tries > 6);
  expect(tries).toBe(12);
  stop.abort();
  await running;
});

test("TC-K12 a success resets the number of failures", async () => {
  const stop = new AbortController();
  let tries = 0;
  const queue = new WorkQueue({
    name: "test",
    work: async () => {
      if (++tries % 3 !== 0) throw new Error("not yet");
    },
    log: silentLogger,
    backoff: { firstMs: 1, maxMs: 1 },
  });
  const running = queue.run(stop.signal);
  for (let round = 1; round <= 4; round++) {
    queue.add("a");
    await eventually(() => queue.isIdle && tries === 3 * round);
  }
  stop.abort();
  await running;
});

test("one worker at a time processes a key, and once more if the key is added meanwhile", async () => {
  const stop = new AbortController();
  const doing = new Map<string, number>();
  const done: string[] = [];
  let most = 0;
  const queue = new WorkQueue({
    name: "test",
    workers: 4,
    work: async (key) => {
      doing.set(key, (doing.get(key) ?? 0) + 1);
      most = Math.max(most, doing.get(key) ?? 0);
      await Bun.sleep(2);
      doing.set(key, (doing.get(key) ?? 1) - 1);
      done.push(key);
    },
    log: silentLogger,
  });
  const running = queue.run(stop.signal);
  for (const key of ["a", "b", "a", "c", "b"]) queue.add(key);
  await Bun.sleep(1);
  queue.add("a");
  queue.add("a");
  await eventually(() => queue.isIdle);
  expect(most).toBe(1);
  expect(done.sort()).toEqual(["a", "a", "b", "c"]);
  stop.abort();
  await running;
});
