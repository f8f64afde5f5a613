// Several processes share the file: a write that meets another one's waits its turn, and says so when it never comes.
import { delay } from "../../lib/retry.ts";
import { Unavailable } from "../errors.ts";
import { whyNot } from "./why-not.ts";

/** SQLite itself waits this long, blocking the event loop; the rest of a wait lets others run. */
export const BLOCKING_WAIT_MS = 15;

/** Tries until no other process is in the way. What else SQLite complains of makes the file `Unavailable`. */
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
      if (!isBusy(error)) throw new Unavailable(file, whyNot(error), { cause: error });
      const held = (): Unavailable => {
        const waitedMs = Math.round(performance.now() - started);
        return new Unavailable(file, `another process held it for ${waitedMs} ms`, { cause: error });
      };
      if (performance.now() - started >= timeoutMs) throw held();
      await delay(1 + Math.random() * 9, signal).catch((reason: unknown) => {
        throw reason instanceof Unavailable ? held() : reason; // a deadline does not know what was in the way
      });
    }
  }
}

export const isBusy = (error: unknown): boolean => /^SQLITE_(BUSY|LOCKED)/.test(sqliteCode(error));

const sqliteCode = (error: unknown): string =>
  error instanceof Error && "code" in error && typeof error.code === "string" && error.code.startsWith("SQLITE_")
    ? error.code
    : "";
