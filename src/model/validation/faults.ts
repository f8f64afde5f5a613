// What is wrong with a resource, field by field: where, what stands there, what is wanted.
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { nearest } from "../../lib/nearest-name.ts";
import { shorten } from "../../lib/shorten.ts";

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
  return inOneLine(shorten(text));
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
