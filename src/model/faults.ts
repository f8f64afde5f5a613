// What is wrong with a resource, field by field: where, what stands there, what is wanted.
import { describeJson } from "../lib/lossless-json.ts";

export interface FieldFault {
  /** Path from the resource's top: `spec.ingress[0].source.nets[1]`. */
  readonly field: string;
  readonly value?: unknown;
  /** What is wanted, for people. */
  readonly reason: string;
}

/** Collects faults under a path. Keys are joined by dots, indices stand in brackets. */
export type Report = (path: readonly (string | number)[] | string, value: unknown, reason: string) => void;

export function fieldPath(path: readonly PropertyKey[]): string {
  let text = "";
  for (const part of path)
    text += typeof part === "number" ? `[${part}]` : text === "" ? String(part) : `.${String(part)}`;
  return text;
}

/** A value as it reads best in one line: line breaks and what else a terminal would obey are written out. */
export function describeValue(value: unknown): string {
  const isText = typeof value === "string" || (typeof value === "number" && !Number.isFinite(value));
  const text = isText ? String(value) : describeJson(value);
  return inOneLine(text.length > 200 ? `${text.slice(0, 197)}...` : text);
}

export const inOneLine = (text: string): string => text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, written);

const written = (character: string): string =>
  character < " "
    ? JSON.stringify(character).slice(1, -1)
    : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Adds to a reason which of the possible values was probably meant, if one is similar to the value. */
export function withSuggestion(reason: string, value: unknown, possible: Iterable<string>): string {
  const near = typeof value === "string" ? nearest(value, possible) : undefined;
  return near === undefined ? reason : `${reason}; did you mean ${near}?`;
}

/** The known name that is most similar to what was written, for a hint; undefined if none is similar. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  // In a word of three letters, two wrong ones leave nothing to recognise it by.
  let bestDistance = Math.max(name.length < 4 ? 1 : 2, Math.floor(name.length / 4)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase(), bestDistance);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
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
