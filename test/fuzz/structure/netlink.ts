// Mutates netlink messages as trees of attributes. https://docs.kernel.org/userspace-api/netlink/intro.html
import type { Structure } from "./structure.ts";
import { tree, type TreeNode } from "./tree.ts";

const MESSAGE_HEADER = 16;
const NESTED = 0x8000;

/** @param header the length of the family's fixed header, by message type */
export function netlink(header: (type: number) => number): Structure {
  const parse = (input: Uint8Array): TreeNode[] | undefined => {
    const messages: TreeNode[] = [];
    const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
    for (let at = 0; at + MESSAGE_HEADER <= input.length; ) {
      const size = view.getUint32(at, true);
      if (size < MESSAGE_HEADER || at + size > input.length) break;
      const fixed = at + MESSAGE_HEADER + header(view.getUint16(at + 4, true));
      if (fixed > at + size) break;
      const head = input.slice(at, fixed);
      const attributes = parseAttributes(input.subarray(fixed, at + size)) ?? [];
      messages.push({ tag: 0, kind: 1, payload: [{ tag: 0, kind: 2, payload: head }, ...attributes] });
      at += (size + 3) & ~3;
    }
    return messages.length === 0 ? undefined : messages;
  };
  return tree({ parse, encode: encodeMessages, tags: 48 });
}

/** Kind 0 is an attribute, 1 a message, 2 the headers of a message. */
function encodeMessages(nodes: readonly TreeNode[]): Uint8Array {
  return concat(
    nodes.map((node) => {
      const children = Array.isArray(node.payload) ? node.payload : [{ tag: 0, kind: 2, payload: node.payload }];
      const body = concat(children.map(encodeNode)).slice();
      if (body.length >= 4) new DataView(body.buffer).setUint32(0, body.length, true);
      return padded(body);
    }),
  );
}

function encodeNode({ tag, kind, payload }: TreeNode): Uint8Array {
  const body = Array.isArray(payload) ? concat(payload.map(encodeNode)) : payload;
  if (kind === 2) return body;
  const attribute = new Uint8Array(4 + body.length);
  const view = new DataView(attribute.buffer);
  view.setUint16(0, Math.min(attribute.length, 0xffff), true);
  view.setUint16(2, tag, true);
  attribute.set(body, 4);
  return padded(attribute);
}

/** Parses attributes that fill the bytes exactly. Without NLA_F_NESTED, only payloads that look like attributes are nests. */
function parseAttributes(input: Uint8Array, depth = 0): TreeNode[] | undefined {
  const nodes: TreeNode[] = [];
  const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
  let at = 0;
  while (at + 4 <= input.length) {
    const length = view.getUint16(at, true);
    const tag = view.getUint16(at + 2, true);
    if (length < 4 || at + length > input.length) return undefined;
    const payload = input.slice(at + 4, at + length);
    const isNest = (tag & NESTED) !== 0 || (payload.length >= 8 && (tag & 0x3fff) < 64);
    const children = isNest && depth < 6 ? parseAttributes(payload, depth + 1) : undefined;
    nodes.push({ tag, kind: 0, payload: children === undefined || children.length === 0 ? payload : children });
    at += (length + 3) & ~3;
  }
  return at < input.length ? undefined : nodes;
}

function padded(body: Uint8Array): Uint8Array {
  const rest = (4 - (body.length & 3)) & 3;
  return rest === 0 ? body : concat([body, new Uint8Array(rest)]);
}

const concat = (parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));
