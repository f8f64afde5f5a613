// Collects garbage in worker threads that block in poll(2) and never return to the event loop. The runtime would let far
// more garbage accumulate than such a thread needs: after 10,000 pods, the CNI service's thread held 15 MB of it.

const ROUNDS_PER_COLLECTION = 200;

/** Returns a function that the thread calls once per round of its poll loop; every 200th call collects garbage. */
export function createPeriodicGc(): () => void {
  let rounds = 0;
  return () => {
    if (++rounds % ROUNDS_PER_COLLECTION === 0) Bun.gc(true);
  };
}
