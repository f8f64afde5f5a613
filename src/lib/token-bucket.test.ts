import { expect, test } from "bun:test";
import fc from "fast-check";
import { TokenBucket } from "./token-bucket.ts";

function bench(options: { readonly capacity: number; readonly initial?: number; readonly refillMs: number }) {
  let now = 0;
  return { bucket: new TokenBucket({ ...options, now: () => now }), wait: (ms: number) => (now += ms) };
}

test("a burst takes all tokens, then one token is added per refill time", () => {
  const { bucket, wait } = bench({ capacity: 3, refillMs: 100 });
  expect([1, 2, 3, 4].map(() => bucket.tryTake())).toEqual([0, 0, 0, 100]);
  wait(99);
  expect(bucket.tryTake()).toBe(1);
  wait(1);
  expect([1, 2].map(() => bucket.tryTake())).toEqual([0, 100]);
});

test("a bucket starts with its initial tokens and never holds more than its capacity", () => {
  const { bucket, wait } = bench({ capacity: 2, initial: 1, refillMs: 100 });
  expect([1, 2].map(() => bucket.tryTake())).toEqual([0, 100]);
  wait(10_000);
  expect([1, 2, 3].map(() => bucket.tryTake())).toEqual([0, 0, 100]);
});

test("rounding costs no token", () =>
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20 }),
      fc.double({ min: 0.1, max: 1000, noNaN: true }),
      fc.double({ min: 0, max: 1e7, noNaN: true }),
      (capacity, refillMs, now) => {
        const bucket = new TokenBucket({ capacity, refillMs, now: () => now });
        for (let i = 0; i < capacity; i++) expect(bucket.tryTake()).toBe(0);
        expect(bucket.tryTake()).toBeCloseTo(refillMs, 5);
      },
    ),
  ));

test("in any interval at most the capacity plus the refilled tokens are taken", () =>
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 10 }),
      fc.double({ min: 0.1, max: 100, noNaN: true }),
      fc.array(fc.double({ min: 0, max: 50, noNaN: true }), { maxLength: 100 }),
      (capacity, refillMs, pauses) => {
        const { bucket, wait } = bench({ capacity, refillMs });
        let taken = 0;
        let elapsed = 0;
        for (const pause of pauses) {
          elapsed += pause;
          wait(pause);
          if (bucket.tryTake() === 0) taken++;
          expect(taken).toBeLessThanOrEqual(Math.floor(capacity + elapsed / refillMs + 1e-6));
        }
      },
    ),
  ));

test("callers that wait continue in the order of their calls, one per refill time", async () => {
  const bucket = new TokenBucket({ capacity: 2, refillMs: 10 });
  const started = performance.now();
  const order: number[] = [];
  await Promise.all([0, 1, 2, 3, 4].map((i) => bucket.take().then(() => order.push(i))));
  expect(order).toEqual([0, 1, 2, 3, 4]);
  expect(performance.now() - started).toBeGreaterThan(25);
});

test("without a refill time there is no limit", async () => {
  const bucket = new TokenBucket({ capacity: 0, refillMs: 0 });
  expect(bucket.tryTake()).toBe(0);
  await Promise.all(Array.from({ length: 1000 }, () => bucket.take()));
});

test("a wait whose signal aborts is rejected", async () => {
  const bucket = new TokenBucket({ capacity: 0, refillMs: 60_000 });
  const waiting = bucket.take(AbortSignal.timeout(10));
  await expect(waiting).rejects.toThrow();
});
