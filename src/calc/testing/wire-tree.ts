// Decodes protobuf messages to trees of field numbers, for tests.
import { expect } from "bun:test";
import { bytesOf, type RawField, rawFields } from "../../lib/testing/proto-fields.ts";
import type { DataplaneMessage } from "../messages.ts";
import { encodeToDataplane } from "../wire/to-dataplane.ts";

/** Numbers and texts of a message, nested as on the wire: `{ 1: ["a"], 2: [{ … }] }`. */
export type Tree = { [field: number]: (string | number | Tree)[] };
export type Shape = { readonly [field: number]: "text" | "number" | Shape };
function tree(fields: readonly RawField[], shape: Shape): Tree {
  const out: Tree = {};
  for (const field of fields) {
    const kind = shape[field.number];
    if (kind === undefined) throw new Error(`field ${field.number} is not in the protocol`);
    (out[field.number] ??= []).push(valueOf(field, kind));
  }
  return out;
}
function valueOf(field: RawField, kind: Shape[number]): Tree[number][number] {
  if (kind === "number") return Number(field.value);
  const bytes = bytesOf(field);
  return kind === "text" ? bytes.toString() : tree(rawFields(bytes), kind);
}
export const decodeTree = (message: DataplaneMessage, tag: number, shape: Shape, sequence = 7) => {
  const envelope = rawFields(encodeToDataplane(message, sequence));
  expect(envelope.map(({ number }) => number).sort((a, b) => a - b)).toEqual([tag, 15].sort((a, b) => a - b));
  expect(envelope.find(({ number }) => number === 15)?.value).toBe(sequence);
  return tree(rawFields(bytesOf(envelope.find(({ number }) => number === tag))), shape);
};

export const T = "text";
export const N = "number";
const PORTS: Shape = { 1: N, 2: N };
export const RULE: Shape = {
  1: T,
  2: N,
  3: { 1: N, 2: T },
  4: T,
  5: PORTS,
  6: T,
  7: PORTS,
  8: N,
  9: { 1: N, 2: N },
  10: T,
  11: T,
  12: T,
  13: T,
  15: T,
  102: { 1: N, 2: T },
  103: T,
  104: PORTS,
  105: T,
  106: PORTS,
  107: N,
  108: { 1: N, 2: N },
  109: T,
  110: T,
  112: T,
  113: T,
  114: T,
  115: T,
  116: T,
  117: T,
  118: T,
  119: T,
  120: { 1: T, 2: T },
  121: { 1: T, 2: T },
  122: { 1: T, 2: { 1: T, 2: T } },
  123: { 1: { 1: T, 2: T } },
  130: T,
  131: T,
  132: T,
  133: T,
  201: T,
};
export const POLICY_ID: Shape = { 2: T, 3: T, 4: T };
export const TIER: Shape = { 1: T, 2: POLICY_ID, 3: POLICY_ID, 4: T };
