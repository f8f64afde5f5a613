// Requests that another thread sends (`NetlinkSocket.requestAside`) hold that thread until the kernel is done: 20 ms for a
// link that goes. The runtime has as many threads for such work as there are processors; on a small machine two links that
// are being buried would keep every other pod waiting.
import { setEnvironment } from "./sys.ts";

/** Of a program that serves many pods. Threads are only made when there is work for them. */
const THREADS = 16;

/**
 * To be called before a program does anything else: the runtime looks once, when it first needs such a thread. Of no use
 * where it has translated the sources itself: it needed some for that.
 */
export function allowManyAsides(): void {
  setEnvironment("UV_THREADPOOL_SIZE", String(THREADS));
}
