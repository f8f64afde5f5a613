// Waiting and trying again. Clocks and randomness are given from outside where a test needs them; every wait ends at
// once when its signal aborts.

export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
  readonly factor?: number;
  /** Share of each delay that is random, 0–1, so that many clients do not march in step. */
  readonly jitter?: number;
  readonly random?: () => number;
}

/** The delay before attempt `attempt` (the first retry is 0). */
export function backoffDelay(backoff: Backoff, attempt: number): number {
  const full = Math.min(backoff.maxMs, backoff.firstMs * (backoff.factor ?? 2) ** attempt);
  const jitter = backoff.jitter ?? 0;
  return full * (1 - jitter + jitter * (backoff.random ?? Math.random)());
}

/** Resolves after the time, or rejects with the signal's reason. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Resolves after the time, or as soon as the signal aborts: for loops that look at the signal themselves. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return delay(ms, signal).catch(() => {});
}

/** Lets sockets, timers and everybody else who waits have their turn. */
export const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Resolves when the signal aborts, at once when it has. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** What the promise comes to, or the signal's reason if that is sooner. What it stands for goes on either way. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  if (signal.aborted) {
    promise.catch(() => {}); // nobody waits for it any more, and its failure would be nobody's
    return Promise.reject(signal.reason);
  }
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", onAbort));
}
