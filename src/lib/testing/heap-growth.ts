// Finds leaks: counts the objects that stay in the JavaScript heap after something was done many times.
import { heapStats } from "bun:jsc";

const WARM_UP_ROUNDS = 1000;
const ROUNDS = 4000;

/**
 * Returns how many objects (also strings) each round leaves behind. Code that keeps nothing returns about 0: growth of
 * the runtime's own caches is spread over many rounds.
 * @param round what is repeated; called with a new number each time, to make new names of
 */
export async function objectsLeftPerRound(round: (number: number) => void | Promise<void>): Promise<number> {
  let number = 0;
  const run = async (rounds: number): Promise<number> => {
    for (let i = 0; i < rounds; i++) await round(number++);
    Bun.gc(true);
    return heapStats().objectCount;
  };
  const before = await run(WARM_UP_ROUNDS);
  return ((await run(ROUNDS)) - before) / ROUNDS;
}
