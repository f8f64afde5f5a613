import { expect, test } from "bun:test";
import { createLogger } from "../../lib/log.ts";
import { EventFollower } from "./event-follower.ts";

/** A follower whose listeners end as told, and what it did. */
function follow(open: (onFailure: (why: Error) => void, attempt: number) => void) {
  const lines: string[] = [];
  const seen = { opened: 0, closed: 0, listed: 0, inSync: 0 };
  const follower = new EventFollower({
    open: (onFailure) => {
      open(onFailure, ++seen.opened);
      return { [Symbol.asyncDispose]: async () => void seen.closed++ };
    },
    list: () => void seen.listed++,
    onListed: () => void seen.inSync++,
    logger: createLogger({ level: "info", write: ({ level, sentence }) => lines.push(`${level} ${sentence}`) }),
    refreshMs: 0,
    backoff: { firstMs: 5, maxMs: 40 },
    soundMs: 30,
  });
  const stop = new AbortController();
  const running = follower.run(stop.signal);
  const end = async () => {
    stop.abort();
    await running;
  };
  return { seen, lines, end };
}
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("a listener that dies at once is opened again with growing pauses, and each time everything is listed", async () => {
  const { seen, lines, end } = follow((onFailure) => queueMicrotask(() => onFailure(new Error("the thread died"))));
  await wait(200);
  await end();
  // 5 + 10 + 20 + 40 + 40 + 40 …: some eight times in 200 ms, and never thousands.
  expect(seen.opened).toBeGreaterThan(3);
  expect(seen.opened).toBeLessThan(12);
  expect([seen.listed, seen.inSync, seen.closed]).toEqual([seen.opened, seen.opened, seen.opened]);
  expect(lines[0]).toContain("interface events broke off");
});

test("a listener that cannot be opened leaves the listing", async () => {
  const { seen, end } = follow(() => {
    throw new Error("no more threads");
  });
  await wait(60);
  await end();
  expect(seen.inSync).toBeGreaterThan(1);
  expect(seen.inSync).toBeLessThan(8);
});

test("after a listener that lived long the next pause is short again", async () => {
  const gaps: number[] = [];
  let endedAt = 0;
  const { end } = follow((onFailure, attempt) => {
    if (endedAt > 0) gaps.push(performance.now() - endedAt);
    const lives = attempt === 4 ? 50 : 0;
    setTimeout(() => {
      endedAt = performance.now();
      onFailure(new Error("ended"));
    }, lives);
  });
  await wait(250);
  await end();
  // The pauses are 5, 10, 20, and after the fourth, which lived 50 ms, again 5.
  expect(gaps.length).toBeGreaterThan(3);
  expect(gaps[2]).toBeGreaterThanOrEqual(19);
  expect(gaps[3]).toBeLessThan(gaps[2] ?? 0);
});
