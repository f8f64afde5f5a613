// Mutates a stream of frames: length of the rest (4 bytes, big endian), type (1 byte), payload.
import { tree, type TreeNode } from "./tree.ts";

/** Changes the frames after a fixed preface. */
export const frames = (preface: Uint8Array) =>
  tree({
    tags: 12,
    parse: (input) => {
      const nodes: TreeNode[] = [{ tag: 0, kind: 1, payload: input.slice(0, preface.length) }];
      const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
      let at = preface.length;
      for (; at + 5 <= input.length; ) {
        const length = view.getUint32(at);
        if (length < 1 || at + 4 + length > input.length) return undefined;
        nodes.push({ tag: input[at + 4] ?? 0, kind: 0, payload: input.slice(at + 5, at + 4 + length) });
        at += 4 + length;
      }
      return nodes;
    },
    encode: encodeFrames,
  });

function encodeFrames(nodes: readonly TreeNode[]): Uint8Array {
  return new Uint8Array(
    Buffer.concat(
      nodes.map(({ tag, kind, payload }) => {
        const body = Array.isArray(payload) ? encodeFrames(payload) : payload;
        if (kind === 1) return body;
        const head = Buffer.alloc(5);
        head.writeUInt32BE(1 + body.length, 0);
        head[4] = tag & 255;
        return Buffer.concat([head, body]);
      }),
    ),
  );
}
