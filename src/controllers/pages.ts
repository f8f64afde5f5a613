// Serves HTTP pages: /metrics on one port, /liveness and /readiness on another.
import { describeError, type Logger } from "../lib/log/log.ts";
import { type Pages, servePages } from "../lib/http/pages.ts";

/** Serves pages until disposed. If the port is in use, logs an error and the program continues. Port 0 serves nothing. */
export async function servePagesOn(what: string, port: number, pages: Pages, log: Logger): Promise<AsyncDisposable> {
  const nothing = { async [Symbol.asyncDispose]() {} };
  if (port <= 0) return nothing;
  try {
    return await servePages({ port, pages });
  } catch (error) {
    log.error(`cannot serve ${what}`, { port, error: describeError(error) });
    return nothing;
  }
}
