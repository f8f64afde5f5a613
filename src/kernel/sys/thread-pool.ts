// Enlarges the runtime's thread pool for blocking calls. A netlink request that is sent off-thread
// (`NetlinkSocket.requestOffThread`) occupies a thread until the kernel has finished it: 20 ms for the deletion of a link.
// By default the pool has one thread per CPU, so on a small machine two deletions would make all other pods wait.
import { setenvIfUnset } from "./sys.ts";

/** The pool's maximum: threads are created only when there is work for them. */
const THREADS = 16;

/**
 * Call this before anything else in a program: the runtime reads the variable once, when it starts the first thread of the
 * pool. It has no effect when the program runs from source, because the runtime uses the pool to transpile the sources.
 */
export function enlargeThreadPool(): void {
  setenvIfUnset("UV_THREADPOOL_SIZE", String(THREADS));
}
