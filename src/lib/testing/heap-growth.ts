// Detects memory leaks in tests: counts the objects that remain on the JavaScript heap after many repetitions.
import { heapStats } from "bun:jsc";

const WARM_UP_ROUNDS = 1000;
const ROUNDS = 4000;
/** A leak grows in every measurement. Objects of other tests in the process, such as buffered output, grow in one of them. */
const MEASUREMENTS = 3;
const NEGLIGIBLE = 0.1;

/**
 * Returns the number of objects, including strings, that remain after each round. It is about 0 for code without leaks,
 * because growth of the runtime's own caches is divided by the number of rounds.
 * @param round the repeated code; it receives a new number each time, from which it can derive new names
 */
export async function objectsLeftPerRound(round: (number: number) => void | Promise<void>): Promise<number> {
  let number = 0;
  const run = async (rounds: number): Promise<number> => {
    for (let i = 0; i < rounds; i++) await round(number++);
    Bun.gc(true);
    return heapStats().objectCount;
  };
  let before = await run(WARM_UP_ROUNDS);
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < MEASUREMENTS && least > NEGLIGIBLE; i++) {
    const after = await run(ROUNDS);
    least = Math.min(least, (after - before) / ROUNDS);
    before = after;
  }
  return least;
}
