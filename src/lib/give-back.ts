// Memory that a start leaves behind. Reading a whole cluster and writing it to the kernel for the first time makes more
// garbage than a day of changes; left to itself the collector would keep the room it took for good.

/** Collects everything now: some tens of milliseconds, for moments that come once in the life of a process. */
export function giveBackMemory(): void {
  Bun.gc(true);
}
