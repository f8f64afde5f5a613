// Waits for conditions in tests, instead of sleeping for a fixed time.
import { delay } from "../retry.ts";

const FIRST_DELAY_MS = 1;
const MAX_DELAY_MS = 50;

/**
 * Calls `attempt` until it returns a value other than undefined and false, and returns that value.
 * @throws Error after `withinMs`, with `what` or the source text of `attempt`
 */
export async function eventually<T>(
  attempt: () => T | undefined | false | Promise<T | undefined | false>,
  withinMs = 20_000,
  what?: string,
): Promise<T> {
  for await (const _ of polls(withinMs)) {
    const value = await attempt();
    if (value !== undefined && value !== false) return value;
  }
  throw new Error(`not within ${withinMs} ms: ${what ?? attempt.toString()}`);
}

/**
 * Calls `read` until `isExpected` accepts its value, and returns that value.
 * @throws Error after `withinMs`, with the last value
 */
export async function pollUntil<T>(
  read: () => T | Promise<T>,
  isExpected: (value: T) => boolean,
  withinMs = 20_000,
): Promise<T> {
  let value: T | undefined;
  for await (const _ of polls(withinMs)) {
    value = await read();
    if (isExpected(value)) return value;
  }
  throw new Error(`not within ${withinMs} ms; last value: ${JSON.stringify(value)}`);
}

/**
 * Checks for the whole time that `condition` holds. For tests that something does not happen.
 * @throws Error if it does not hold, with the time at which this was noticed
 */
export async function staysTrue(condition: () => boolean | Promise<boolean>, forMs: number): Promise<void> {
  const started = performance.now();
  for await (const _ of polls(forMs))
    if (!(await condition()))
      throw new Error(
        `not for ${forMs} ms, only ${Math.round(performance.now() - started)} ms: ${condition.toString()}`,
      );
}

/** Yields at growing intervals, so that fast conditions are noticed at once and slow ones cost little CPU time. */
async function* polls(withinMs: number): AsyncGenerator<void> {
  const deadlineMs = performance.now() + withinMs;
  for (let delayMs = FIRST_DELAY_MS; ; delayMs = Math.min(delayMs * 1.5, MAX_DELAY_MS)) {
    yield;
    if (performance.now() > deadlineMs) return;
    await delay(delayMs);
  }
}
