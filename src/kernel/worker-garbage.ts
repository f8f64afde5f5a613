// Garbage collection in threads that wait in a system call and never return to the event loop.

const ROUNDS_PER_COLLECTION = 200;

/**
 * Returns a function to be called once per round of such a thread, which collects garbage every 200 rounds. The runtime
 * waits for far more garbage than these threads ever need: after 10,000 pods the CNI service's thread held 15 MB of it.
 */
export function collectNowAndThen(): () => void {
  let rounds = 0;
  return () => {
    if (++rounds % ROUNDS_PER_COLLECTION === 0) Bun.gc(true);
  };
}
