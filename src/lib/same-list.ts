/** Whether both lists hold the same elements in the same order. */
export const sameList = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((element, i) => element === b[i]);
