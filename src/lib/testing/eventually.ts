// How tests wait: for a condition, never for a time that happened to be long enough.
import { delay } from "../retry.ts";

const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

/**
 * Waits until `attempt` gives something (neither undefined nor false), and gives it.
 * @throws after the time, with `what` or the text of the condition
 */
export async function eventually<T>(
  attempt: () => T | undefined | false | Promise<T | undefined | false>,
  withinMs = 20_000,
  what?: string,
): Promise<T> {
  for await (const _ of turns(withinMs)) {
    const value = await attempt();
    if (value !== undefined && value !== false) return value;
  }
  throw new Error(`not within ${withinMs} ms: ${what ?? attempt.toString()}`);
}

/** Looks until what it sees is right, and gives it; on time-out says what was seen last. */
export async function lookUntil<T>(
  look: () => T | Promise<T>,
  isRight: (seen: T) => boolean,
  withinMs = 20_000,
): Promise<T> {
  let seen: T | undefined;
  for await (const _ of turns(withinMs)) {
    seen = await look();
    if (isRight(seen)) return seen;
  }
  throw new Error(`not within ${withinMs} ms; last seen: ${JSON.stringify(seen)}`);
}

/** Often at first, then less and less: what is quick is seen at once, what is slow is not disturbed. */
async function* turns(withinMs: number): AsyncGenerator<void> {
  const end = performance.now() + withinMs;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 1.5, LONGEST_PAUSE_MS)) {
    yield;
    if (performance.now() > end) return;
    await delay(pauseMs);
  }
}
