// Compares two lists.

/** Returns whether both lists contain the same elements in the same order. */
export const listsEqual = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((element, i) => element === b[i]);

/** Returns the part of each list between their common prefix and their common suffix. */
export function differingParts<T>(
  a: readonly T[],
  b: readonly T[],
): { readonly a: readonly T[]; readonly b: readonly T[] } {
  const shorter = Math.min(a.length, b.length);
  let start = 0;
  while (start < shorter && a[start] === b[start]) start++;
  let end = 0;
  while (end < shorter - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return { a: a.slice(start, a.length - end), b: b.slice(start, b.length - end) };
}
