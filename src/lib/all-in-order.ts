/**
 * Waits for operations that run at the same time. Throws the failure of the first one in the list that fails, whichever
 * failed first in time, and does not wait for those after it: the caller decides by the order of the list which failure
 * is reported.
 */
export async function allInOrder<T extends readonly unknown[]>(
  promises: readonly [...{ [I in keyof T]: Promise<T[I]> }],
): Promise<T> {
  for (const promise of promises) promise.catch(() => {}); // reported below, unless an earlier one fails
  const results: unknown[] = [];
  for (const promise of promises) results.push(await promise);
  return results as unknown as T;
}
