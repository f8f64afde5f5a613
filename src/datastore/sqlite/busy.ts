// Retries operations on the database file while another process holds its lock.
import { delay } from "../../lib/retry.ts";
import { Unavailable } from "../errors.ts";
import { describeFileError } from "./file-error.ts";

/** SQLite waits this long for a lock and blocks the event loop. Longer waits happen between retries, without blocking. */
export const BLOCKING_WAIT_MS = 15;

/**
 * Calls `work` until it succeeds or the timeout has passed.
 * @throws Unavailable after the timeout, and at once for any other SQLite error
 */
export async function retryBusy<T>(
  options: { readonly file: string; readonly timeoutMs: number; readonly signal?: AbortSignal },
  work: () => T,
): Promise<T> {
  const { file, timeoutMs, signal } = options;
  const started = performance.now();
  for (;;) {
    signal?.throwIfAborted();
    try {
      return work();
    } catch (error) {
      if (sqliteCode(error) === "") throw error;
      if (!isBusy(error)) throw new Unavailable(file, describeFileError(error), { cause: error });
      const busyError = (): Unavailable => {
        const waitedMs = Math.round(performance.now() - started);
        return new Unavailable(file, `another process held the lock for ${waitedMs} ms`, { cause: error });
      };
      if (performance.now() - started >= timeoutMs) throw busyError();
      await delay(1 + Math.random() * 9, signal).catch((reason: unknown) => {
        throw reason instanceof Unavailable ? busyError() : reason; // report the lock instead of the passed deadline
      });
    }
  }
}

export const isBusy = (error: unknown): boolean => /^SQLITE_(BUSY|LOCKED)/.test(sqliteCode(error));

const sqliteCode = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" && error.code.startsWith("SQLITE_")
    ? error.code
    : "";
