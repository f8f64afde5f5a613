// Mutates messages that consist of tagged fields with lengths, such as netlink attributes, protobuf fields and length-prefixed
// frames. Fields are changed as a tree and encoded again with correct lengths, so that a parser reaches the changed field.
import { bytes } from "./bytes.ts";
import { json } from "./json.ts";
import type { MutationContext, Structure } from "./structure.ts";

export interface TreeNode {
  tag: number;
  /** Used by formats that have several kinds of values. */
  kind: number;
  payload: Uint8Array | TreeNode[];
}

export interface TreeCodec {
  /** Undefined if the bytes are not a whole number of fields. */
  readonly parse: (bytes: Uint8Array) => TreeNode[] | undefined;
  readonly encode: (nodes: readonly TreeNode[]) => Uint8Array;
  /** Tags that occur. */
  readonly tags: number;
}

/** Changes the fields of a message. One change in five is a mutation of bytes. */
export const tree =
  (codec: TreeCodec): Structure =>
  (input, context) => {
    const nodes = context.random.oneIn(5) ? undefined : codec.parse(input);
    if (nodes === undefined || nodes.length === 0) return bytes(input, context);
    mutateNodes(nodes, codec, context);
    return codec.encode(nodes);
  };

interface Place {
  readonly siblings: TreeNode[];
  readonly at: number;
  readonly node: TreeNode;
}

function places(siblings: TreeNode[], found: Place[] = []): Place[] {
  for (const [at, node] of siblings.entries()) {
    if (found.length > 2000) break;
    found.push({ siblings, at, node });
    if (Array.isArray(node.payload)) places(node.payload, found);
  }
  return found;
}

const SIZES: readonly [number, ...number[]] = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 32];

function mutateNodes(nodes: TreeNode[], codec: TreeCodec, context: MutationContext): void {
  const { random } = context;
  const place = random.pick(places(nodes));
  if (place === undefined) return;
  const { siblings, at, node } = place;
  switch (random.below(9)) {
    case 0:
      siblings.splice(at, 1);
      return;
    case 1:
      siblings.splice(at, 0, ...Array.from({ length: random.below(random.oneIn(10) ? 500 : 4) }, () => copyOf(node)));
      return;
    case 2:
      node.tag = random.below(codec.tags);
      return;
    case 3:
      node.payload = random.bytes(random.pick(SIZES));
      return;
    case 4: {
      const foreign = random.pick(places(codec.parse(context.other()) ?? []));
      if (foreign !== undefined) siblings.splice(at, random.below(2), copyOf(foreign.node));
      return;
    }
    case 5: {
      const target = random.pick(places(nodes).filter(({ node: { payload } }) => Array.isArray(payload)));
      if (target !== undefined && Array.isArray(target.node.payload)) target.node.payload.push(copyOf(node));
      return;
    }
    case 6: {
      const depth = random.oneIn(8) ? 300 : 1 + random.below(4);
      for (let i = 0; i < depth; i++) node.payload = [{ tag: node.tag, kind: node.kind, payload: node.payload }];
      return;
    }
    default:
      mutateLeaf(random.pick(places(nodes).filter(({ node: { payload } }) => !Array.isArray(payload)))?.node, context);
  }
}

function mutateLeaf(node: TreeNode | undefined, context: MutationContext): void {
  if (node === undefined || Array.isArray(node.payload)) return;
  const isText = node.payload[0] === 0x7b || node.payload[0] === 0x5b;
  const other = (): Uint8Array => (isText ? (node.payload as Uint8Array) : context.other());
  node.payload = (isText ? json : bytes)(node.payload, { ...context, other });
}

function copyOf(node: TreeNode): TreeNode {
  const { tag, kind, payload } = node;
  return { tag, kind, payload: Array.isArray(payload) ? payload.map(copyOf) : payload.slice() };
}
