// Collects garbage after a program has started. Reading the whole cluster and programming it for the first time produces
// more garbage than a day of changes, and the runtime would keep that memory.

/** Takes some tens of milliseconds, so call it only once in the life of a process. */
export function collectGarbage(): void {
  Bun.gc(true);
}
