/** Whether both lists hold the same elements in the same order. */
export const sameList = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((element, i) => element === b[i]);

/** What two lists have between their common beginning and their common end. */
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
