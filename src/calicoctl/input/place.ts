// Converts an offset in an input to a line number and a document number.

export function lineAt(source: string, offset: number): number {
  let line = 1;
  for (let i = source.indexOf("\n"); i >= 0 && i < offset; i = source.indexOf("\n", i + 1)) line++;
  return line;
}

/** Counts the document separators before the offset, except one at the beginning of the file. */
export function documentAt(source: string, offset: number): number {
  const before = source.slice(0, offset);
  const separators = [...before.matchAll(/^---(?=\s|$)/gm)];
  const opening = separators[0] !== undefined && !/^[^#\s]/m.test(before.slice(0, separators[0].index));
  return Math.max(1, separators.length + (opening ? 0 : 1));
}
