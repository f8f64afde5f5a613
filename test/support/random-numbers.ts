// Generates pseudo-random numbers that depend only on the seed (xorshift32).

/** Returns a function that returns the next number below a limit. */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed >>> 0 || 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
