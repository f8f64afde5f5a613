// A map keyed by prefix that finds the entries that contain a prefix, and those inside it, in time proportional to the
// prefix length, not to the number of entries. It is a path-compressed binary trie for one IP family. Nodes contain the
// prefix in one or four 32-bit words, because bigints would cost an allocation per step.
import { addressBytes, type Cidr, cidrAddress, cidrLength, type IpAddress, hostCidr } from "./ip.ts";

interface Node<V> {
  readonly words: Uint32Array;
  readonly length: number;
  cidr: Cidr | undefined; // undefined for a node that only joins two branches
  value: V | undefined;
  zero: Node<V> | undefined;
  one: Node<V> | undefined;
}

export class PrefixTrie<V> {
  #root: Node<V> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(cidr: Cidr): V | undefined {
    const node = this.#find(cidr);
    return node?.cidr === undefined ? undefined : node.value;
  }

  set(cidr: Cidr, value: V): this {
    const words = wordsOf(cidr);
    const length = cidrLength(cidr);
    const leaf = (): Node<V> => ({ words, length, cidr, value, zero: undefined, one: undefined });
    let parent: Node<V> | undefined;
    let node = this.#root;
    for (;;) {
      if (node === undefined) {
        this.#link(parent, leaf());
        break;
      }
      const common = commonLength(words, length, node.words, node.length);
      if (common === node.length && common === length) {
        if (node.cidr !== undefined) this.#size--;
        node.cidr = cidr;
        node.value = value;
        break;
      }
      if (common === node.length) {
        parent = node;
        node = bitAt(words, common) === 0 ? node.zero : node.one;
        continue;
      }
      if (common === length) {
        const above = leaf();
        if (bitAt(node.words, common) === 0) above.zero = node;
        else above.one = node;
        this.#link(parent, above);
        break;
      }
      const fork: Node<V> = {
        words,
        length: common,
        cidr: undefined,
        value: undefined,
        zero: undefined,
        one: undefined,
      };
      if (bitAt(words, common) === 0) [fork.zero, fork.one] = [leaf(), node];
      else [fork.zero, fork.one] = [node, leaf()];
      this.#link(parent, fork);
      break;
    }
    this.#size++;
    return this;
  }

  delete(cidr: Cidr): boolean {
    const words = wordsOf(cidr);
    const length = cidrLength(cidr);
    const path: Node<V>[] = [];
    for (let node = this.#root; node !== undefined; ) {
      if (commonLength(words, length, node.words, node.length) < node.length) return false;
      path.push(node);
      if (node.length === length) break;
      node = bitAt(words, node.length) === 0 ? node.zero : node.one;
    }
    const node = path.pop();
    if (node === undefined || node.length !== length || node.cidr === undefined) return false;
    node.cidr = undefined;
    node.value = undefined;
    this.#size--;
    this.#shrink(node, path);
    return true;
  }

  /** Returns the entries that contain the prefix, including itself, the shortest prefix first. */
  *covering(of: Cidr | IpAddress): Iterable<[Cidr, V]> {
    const cidr = asCidr(of);
    const words = wordsOf(cidr);
    const length = cidrLength(cidr);
    for (let node = this.#root; node !== undefined; ) {
      if (node.length > length || commonLength(words, length, node.words, node.length) < node.length) return;
      if (node.cidr !== undefined) yield [node.cidr, node.value as V];
      if (node.length === length) return;
      node = bitAt(words, node.length) === 0 ? node.zero : node.one;
    }
  }

  /** Returns the entries inside the prefix, including itself, in address order, shorter prefixes first. */
  *within(cidr: Cidr): Iterable<[Cidr, V]> {
    yield* walk(this.#subtree(cidr));
  }

  *entries(): Iterable<[Cidr, V]> {
    yield* walk(this.#root);
  }

  #find(cidr: Cidr): Node<V> | undefined {
    const length = cidrLength(cidr);
    const node = this.#subtree(cidr, length);
    return node?.length === length ? node : undefined;
  }

  /** Returns the topmost node inside the prefix. */
  #subtree(cidr: Cidr, length = cidrLength(cidr)): Node<V> | undefined {
    const words = wordsOf(cidr);
    let node = this.#root;
    while (node !== undefined && node.length < length) {
      if (commonLength(words, length, node.words, node.length) < node.length) return undefined;
      node = bitAt(words, node.length) === 0 ? node.zero : node.one;
    }
    return node !== undefined && commonLength(words, length, node.words, node.length) === length ? node : undefined;
  }

  #link(parent: Node<V> | undefined, child: Node<V> | undefined, words = child?.words): void {
    if (parent === undefined) this.#root = child;
    else if (words !== undefined && bitAt(words, parent.length) === 0) parent.zero = child;
    else parent.one = child;
  }

  /** Removes a node that has no entry and at most one branch. */
  #shrink(node: Node<V>, path: Node<V>[]): void {
    if (node.zero !== undefined && node.one !== undefined) return;
    const parent = path.pop();
    this.#link(parent, node.zero ?? node.one, node.words);
    if (parent !== undefined && parent.cidr === undefined) this.#shrink(parent, path);
  }
}

function* walk<V>(root: Node<V> | undefined): Iterable<[Cidr, V]> {
  const stack = [root];
  while (stack.length > 0) {
    const node = stack.pop();
    if (node === undefined) continue;
    if (node.cidr !== undefined) yield [node.cidr, node.value as V];
    stack.push(node.one, node.zero);
  }
}

const asCidr = (of: Cidr | IpAddress): Cidr => (of.includes("/") ? (of as Cidr) : hostCidr(of as IpAddress));

function wordsOf(cidr: Cidr): Uint32Array {
  const bytes = addressBytes(cidrAddress(cidr));
  const words = new Uint32Array(bytes.length / 4);
  for (let i = 0; i < bytes.length; i++) words[i >> 2] = ((words[i >> 2] ?? 0) << 8) | (bytes[i] ?? 0);
  return words;
}

const bitAt = (words: Uint32Array, position: number): number =>
  ((words[position >> 5] ?? 0) >>> (31 - (position & 31))) & 1;

function commonLength(a: Uint32Array, aLength: number, b: Uint32Array, bLength: number): number {
  const limit = Math.min(aLength, bLength);
  for (let i = 0; i << 5 < limit; i++) {
    const different = (a[i] ?? 0) ^ (b[i] ?? 0);
    if (different !== 0) return Math.min(limit, (i << 5) + Math.clz32(different));
  }
  return limit;
}
