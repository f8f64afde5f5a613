// Mutates protobuf messages as trees of fields. https://protobuf.dev/programming-guides/encoding/
import { tree, type TreeNode } from "./tree.ts";

const BYTES = 2;
const SIZE_BY_KIND: Readonly<Record<number, number>> = { 1: 8, 5: 4 };

/** Changes the fields of a protobuf message. */
export const protobuf = tree({ parse: (input) => parseFields(input), encode: encodeFields, tags: 16 });

function parseFields(input: Uint8Array, depth = 0): TreeNode[] | undefined {
  const nodes: TreeNode[] = [];
  let at = 0;
  const varint = (): number | undefined => {
    let value = 0;
    for (let scale = 1; at < input.length && scale < 2 ** 50; scale *= 128) {
      const byte = input[at++] ?? 0;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
    return undefined;
  };
  while (at < input.length) {
    const tag = varint();
    if (tag === undefined || tag < 8) return undefined;
    const kind = tag % 8;
    const start = at;
    if (kind === 0) {
      if (varint() === undefined) return undefined;
      nodes.push({ tag: Math.floor(tag / 8), kind, payload: input.slice(start, at) });
      continue;
    }
    const length = kind === BYTES ? varint() : SIZE_BY_KIND[kind];
    if (length === undefined || at + length > input.length) return undefined;
    const payload = input.slice(at, at + length);
    at += length;
    const children = kind === BYTES && depth < 6 && payload.length > 1 ? parseFields(payload, depth + 1) : undefined;
    nodes.push({ tag: Math.floor(tag / 8), kind, payload: children ?? payload });
  }
  return nodes;
}

function encodeFields(nodes: readonly TreeNode[]): Uint8Array {
  return new Uint8Array(
    Buffer.concat(
      nodes.map(({ tag, kind, payload }) => {
        const body = Array.isArray(payload) ? encodeFields(payload) : payload;
        const head = varintBytes(tag * 8 + (Array.isArray(payload) ? BYTES : kind));
        return Buffer.concat(
          kind === BYTES || Array.isArray(payload) ? [head, varintBytes(body.length), body] : [head, body],
        );
      }),
    ),
  );
}

function varintBytes(value: number): Uint8Array {
  const all: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) all.push((rest % 128) | 128);
  return Uint8Array.from([...all, rest]);
}
