// The pages others read: /metrics on one port, /liveness and /readiness on another.
import { describeError, type Logger } from "../lib/log.ts";
import { type Pages, servePages } from "../lib/pages.ts";

/** Until disposed of. A port that is taken is said, and the program goes on; port 0 is none. */
export async function offerPages(what: string, port: number, pages: Pages, log: Logger): Promise<AsyncDisposable> {
  const nothing = { async [Symbol.asyncDispose]() {} };
  if (port <= 0) return nothing;
  try {
    return await servePages({ port, pages });
  } catch (error) {
    log.error(`${what} cannot be served`, { port, error: describeError(error) });
    return nothing;
  }
}
