// Waits for concurrent operations, and reports the error of the first one in the list that failed.

/**
 * Unlike with Promise.all, the order of the list decides which error is thrown, not the time of the failures. Operations
 * after the failed one are not awaited.
 */
export async function allInOrder<T extends readonly unknown[]>(
  promises: readonly [...{ [I in keyof T]: Promise<T[I]> }],
): Promise<T> {
  for (const promise of promises) promise.catch(() => {}); // reported below, unless an earlier one fails
  const results: unknown[] = [];
  for (const promise of promises) results.push(await promise);
  return results as unknown as T;
}
