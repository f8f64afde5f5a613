// Describes invalid fields of a resource: the path of the field, its value, and the values that are valid.
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { nearest } from "../../lib/nearest-name.ts";
import { shorten } from "../../lib/shorten.ts";

export interface FieldFault {
  /** Path from the resource's top: `spec.ingress[0].source.nets[1]`. */
  readonly field: string;
  readonly value?: unknown;
  /** Describes valid values, in words. */
  readonly reason: string;
}

/** Records a fault. A path given as a list is converted with `fieldPath`. */
export type Report = (path: readonly (string | number)[] | string, value: unknown, reason: string) => void;

/** Joins keys with dots and puts indices in brackets: `spec.ingress[0].action`. */
export function fieldPath(path: readonly PropertyKey[]): string {
  let text = "";
  for (const part of path)
    text += typeof part === "number" ? `[${part}]` : text === "" ? String(part) : `.${String(part)}`;
  return text;
}

/** Returns a value as one short line, with line breaks and other control characters escaped. */
export function describeValue(value: unknown): string {
  const isText = typeof value === "string" || (typeof value === "number" && !Number.isFinite(value));
  const text = isText ? String(value) : describeJson(value);
  return escapeControlCharacters(shorten(text));
}

export const escapeControlCharacters = (text: string): string =>
  text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, escapeCharacter);

const escapeCharacter = (character: string): string =>
  character < " "
    ? JSON.stringify(character).slice(1, -1)
    : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Adds the most similar of the possible values to the reason, if one is similar to the given value. */
export function withSuggestion(reason: string, value: unknown, possible: Iterable<string>): string {
  const near = typeof value === "string" ? nearest(value, possible) : undefined;
  return near === undefined ? reason : `${reason}; did you mean ${near}?`;
}
