import { expect, test } from "bun:test";
import { createLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { EventFollower } from "./event-follower.ts";

/** Runs a follower whose listeners fail as `open` determines, and records what it does. */
function follow(open: (onFailure: (why: Error) => void, attempt: number) => void) {
  const lines: string[] = [];
  const pauses: unknown[] = [];
  const clock = { ms: 0 };
  const seen = { opened: 0, closed: 0, listed: 0, inSync: 0 };
  const follower = new EventFollower({
    open: (onFailure) => {
      open(onFailure, ++seen.opened);
      return { [Symbol.asyncDispose]: async () => void seen.closed++ };
    },
    list: () => void seen.listed++,
    onListed: () => void seen.inSync++,
    logger: createLogger({
      level: "debug",
      write: ({ level, message, fields }) => {
        lines.push(`${level} ${message}`);
        pauses.push(fields["pauseMs"]);
      },
    }),
    refreshMs: 0,
    backoff: { firstMs: 5, maxMs: 40 },
    stableMs: 1000,
    now: () => clock.ms,
  });
  const stop = new AbortController();
  const running = follower.run(stop.signal);
  const end = async () => {
    stop.abort();
    await running;
  };
  return { seen, lines, pauses, clock, end };
}

test("a listener that fails is opened again with growing delays, and each time the interfaces are listed", async () => {
  const { seen, lines, pauses, end } = follow((fail) => queueMicrotask(() => fail(new Error("the thread died"))));
  await eventually(() => pauses.length >= 6);
  await end();
  expect(pauses.slice(0, 6)).toEqual([5, 10, 20, 40, 40, 40]);
  expect([seen.listed, seen.inSync, seen.closed]).toEqual([seen.opened, seen.opened, seen.opened]);
  expect(lines[0]).toContain("warn listening to interface events failed");
});

test("if no listener can be opened, the interfaces are still listed", async () => {
  const { seen, pauses, end } = follow(() => {
    throw new Error("no more threads");
  });
  await eventually(() => pauses.length >= 3);
  await end();
  expect(pauses.slice(0, 3)).toEqual([5, 10, 20]);
  expect(seen.inSync).toBeGreaterThanOrEqual(3);
});

test("after a listener that worked for a long time, the next delay is short again", async () => {
  const { clock, pauses, end } = follow((fail, attempt) =>
    queueMicrotask(() => {
      if (attempt === 4) clock.ms += 1000;
      fail(new Error("ended"));
    }),
  );
  await eventually(() => pauses.length >= 5);
  await end();
  expect(pauses.slice(0, 5)).toEqual([5, 10, 20, 5, 10]);
});
