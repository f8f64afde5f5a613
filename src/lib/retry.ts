// Delays, backoff and waiting for abort signals. Every wait ends at once when its signal aborts.

export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
  readonly factor?: number;
  /** Random share of each delay (0 to 1), so that many clients do not retry at the same time. */
  readonly jitter?: number;
  readonly random?: () => number;
}

/** Returns the delay before a retry. @param attempt 0 for the first retry */
export function backoffDelay(backoff: Backoff, attempt: number): number {
  const full = Math.min(backoff.maxMs, backoff.firstMs * (backoff.factor ?? 2) ** attempt);
  const jitter = backoff.jitter ?? 0;
  return full * (1 - jitter + jitter * (backoff.random ?? Math.random)());
}

/** Resolves after `ms`, or rejects with the signal's reason. */
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

/** Resolves after `ms` or when the signal aborts. For loops that check the signal themselves. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return delay(ms, signal).catch(() => {});
}

/** Lets pending events of sockets and timers be handled. */
export const yieldToEventLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Resolves when the signal aborts, or at once if it has aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Settles like the promise, or rejects with the signal's reason if that aborts first. The operation itself continues. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  if (signal.aborted) {
    promise.catch(() => {}); // otherwise a later rejection would be unhandled
    return Promise.reject(signal.reason);
  }
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", onAbort));
}
