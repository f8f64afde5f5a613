// Finds the name that was probably meant by a name that does not exist, by edit distance.

/** The known name that is most similar to what was written, for a hint; undefined if none is similar. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = wrongLetters(name.length) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase(), bestDistance);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** How many letters of a name may be wrong. With two wrong ones of five, `shell` would be similar to `heal`. */
function wrongLetters(length: number): number {
  if (length < 3) return 0; // only the case differs
  return length < 6 ? 1 : Math.max(2, Math.floor(length / 4));
}

/** How many letters to add, remove, replace or swap with their neighbour (optimal string alignment). */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i);
  let beforePrevious: number[] = [];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = isSwap ? (beforePrevious[j - 2] ?? 0) + 1 : limit;
      row.push(Math.min((previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, substitution, swap));
    }
    beforePrevious = previous;
    previous = row;
  }
  return previous[b.length] ?? limit;
}
