// The outermost prefixes of a changing set: those that lie inside no other prefix of the set. nftables interval sets
// reject overlapping prefixes, so only these are programmed.
//
// Outermost prefixes are disjoint. In address order, only the predecessor of a prefix can contain it, and the prefixes
// inside it are its direct successors: each change costs a search, plus the prefixes that it hides or uncovers.
import {
  addressBits,
  addressFromBigInt,
  addressFromNumber,
  addressToBigInt,
  addressToNumber,
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpVersion,
} from "./ip.ts";
import { SortedKeys } from "../sorted-keys.ts";

export interface PrefixCoverListener {
  /** The prefix has become one of the outermost. */
  added(prefix: Cidr): void;
  /** The prefix was deleted, or lies inside another one now. Called after `added` of the prefixes that replace it. */
  removed(prefix: Cidr): void;
}

export class PrefixCover {
  readonly #all = new Set<Cidr>();
  readonly #version: IpVersion;
  readonly #hostSuffix: string;
  readonly #listener: PrefixCoverListener;
  /** Number of prefixes that contain more than one address. */
  #nets = 0;
  /** Exists while there are such prefixes: single addresses do not contain each other. */
  #index: CoverIndex | undefined;

  constructor(version: IpVersion, listener: PrefixCoverListener) {
    this.#version = version;
    this.#hostSuffix = `/${addressBits(version)}`;
    this.#listener = listener;
  }

  get size(): number {
    return this.#all.size;
  }
  /** True if some prefix contains more than one address. */
  get hasNets(): boolean {
    return this.#nets > 0;
  }

  /** Returns false if the set contained the prefix. */
  add(prefix: Cidr): boolean {
    const isNet = !prefix.endsWith(this.#hostSuffix);
    if (isNet) this.#index ??= createIndex(this.#version, this.#all); // before the prefix is added to #all
    const { size } = this.#all;
    this.#all.add(prefix);
    if (this.#all.size === size) return false;
    if (isNet) this.#nets++;
    if (this.#index === undefined) this.#listener.added(prefix);
    else this.#index.add(prefix, this.#listener);
    return true;
  }

  /** Returns false if the set did not contain the prefix. */
  delete(prefix: Cidr): boolean {
    if (!this.#all.delete(prefix)) return false;
    if (!prefix.endsWith(this.#hostSuffix)) this.#nets--;
    if (this.#index === undefined) this.#listener.removed(prefix);
    else this.#index.delete(prefix, this.#listener);
    if (this.#nets === 0) this.#index = undefined;
    return true;
  }

  /** All prefixes, also those inside others. */
  [Symbol.iterator](): Iterator<Cidr> {
    return this.#all.values();
  }

  /** The outermost prefixes; in address order if there are prefixes of more than one address. */
  outermost(): Iterable<Cidr> {
    return this.#index?.outermost() ?? this.#all;
  }
}

/** The outermost prefixes of a list of one family, in address order. */
export function outermost(prefixes: readonly Cidr[], version: IpVersion): Cidr[] {
  return version === 4 ? outermostOf(V4, prefixes) : outermostOf(V6, prefixes);
}

interface CoverIndex {
  add(prefix: Cidr, listener: PrefixCoverListener): void;
  delete(prefix: Cidr, listener: PrefixCoverListener): void;
  outermost(): Iterable<Cidr>;
}

/** Prefixes as keys that sort by address, then by length. */
interface KeyFormat<K extends number | bigint> {
  key(prefix: Cidr): K;
  prefix(key: K): Cidr;
  /** Less than the key of every prefix that begins after the prefix ends, greater than all others. */
  after(key: K): K;
  sort(keys: K[]): ArrayLike<K>;
}

/** Address times 64 plus length: less than 2^38, exact as a number. */
const V4: KeyFormat<number> = {
  key: (prefix) => addressToNumber(cidrAddress(prefix)) * 64 + cidrLength(prefix),
  prefix: (key) => `${addressFromNumber(Math.floor(key / 64))}/${key % 64}` as Cidr,
  after: (key) => (Math.floor(key / 64) + 2 ** (32 - (key % 64))) * 64 - 0.5,
  sort: (keys) => Float64Array.from(keys).sort(),
};

const V6: KeyFormat<bigint> = {
  key: (prefix) => (addressToBigInt(cidrAddress(prefix)) << 8n) | BigInt(cidrLength(prefix)),
  prefix: (key) => `${addressFromBigInt(key >> 8n, 6)}/${key & 255n}` as Cidr,
  after: (key) => (((key >> 8n) + (1n << (128n - (key & 255n)))) << 8n) - 1n,
  sort: (keys) => keys.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)),
};

function createIndex(version: IpVersion, prefixes: Iterable<Cidr>): CoverIndex {
  return version === 4 ? new KeyedCoverIndex(V4, prefixes) : new KeyedCoverIndex(V6, prefixes);
}

class KeyedCoverIndex<K extends number | bigint> implements CoverIndex {
  readonly #format: KeyFormat<K>;
  readonly #outermost: SortedKeys<K>;
  readonly #covered = new SortedKeys<K>();

  /** @param prefixes distinct single addresses */
  constructor(format: KeyFormat<K>, prefixes: Iterable<Cidr>) {
    this.#format = format;
    this.#outermost = new SortedKeys(format.sort(Array.from(prefixes, (prefix) => format.key(prefix))));
  }

  add(prefix: Cidr, listener: PrefixCoverListener): void {
    const key = this.#format.key(prefix);
    this.#outermost.seek(key);
    const { previous, next } = this.#outermost;
    if (previous !== undefined && this.#format.after(previous) > key) {
      this.#covered.insert(key);
      return;
    }
    listener.added(prefix);
    const after = this.#format.after(key);
    if (next !== undefined && next < after) this.#cover(key, after, listener);
    this.#outermost.insertHere(key);
  }

  /** Moves the outermost prefixes inside a new one to the covered ones. */
  #cover(key: K, after: K, listener: PrefixCoverListener): void {
    for (let inner = this.#outermost.ceiling(key); inner !== undefined && inner < after; ) {
      this.#outermost.delete(inner);
      this.#covered.insert(inner);
      listener.removed(this.#format.prefix(inner));
      inner = this.#outermost.ceiling(key);
    }
    this.#outermost.seek(key);
  }

  delete(prefix: Cidr, listener: PrefixCoverListener): void {
    const key = this.#format.key(prefix);
    if (this.#covered.delete(key)) return;
    this.#outermost.delete(key);
    const after = this.#format.after(key);
    for (let inner = this.#covered.ceiling(key); inner !== undefined && inner < after; ) {
      this.#covered.delete(inner);
      this.#outermost.insert(inner);
      listener.added(this.#format.prefix(inner));
      inner = this.#covered.ceiling(this.#format.after(inner));
    }
    listener.removed(prefix);
  }

  *outermost(): Generator<Cidr> {
    for (const key of this.#outermost) yield this.#format.prefix(key);
  }
}

function outermostOf<K extends number | bigint>(format: KeyFormat<K>, prefixes: readonly Cidr[]): Cidr[] {
  const keys = format.sort(prefixes.map((prefix) => format.key(prefix)));
  const kept: Cidr[] = [];
  let after: K | undefined;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (key === undefined || (after !== undefined && key < after)) continue;
    kept.push(format.prefix(key));
    after = format.after(key);
  }
  return kept;
}
