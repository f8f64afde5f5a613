// A sorted collection of distinct numbers or bigints with a cursor. The keys are in blocks, and an insertion moves at most
// one block, so its cost hardly depends on the number of keys. A number takes about 8 bytes, a bigint 40.

const BLOCK = 256;

export class SortedKeys<K extends number | bigint> {
  /** Each block is sorted and not empty, and its keys are less than all keys of the next block. */
  readonly #blocks: K[][] = [];
  // The cursor: the position of the last `seek`.
  #block = 0;
  #at = 0;

  /** @param keys sorted and distinct */
  constructor(keys: ArrayLike<K> = []) {
    for (let i = 0; i < keys.length; i += BLOCK / 2)
      this.#blocks.push(Array.prototype.slice.call(keys, i, i + BLOCK / 2));
  }

  /** Moves the cursor to the key, or to the position where it would be inserted. */
  seek(key: K): void {
    this.#block = Math.max(0, this.#blockOf(key));
    const block = this.#blocks[this.#block];
    this.#at = block === undefined ? 0 : lowerBound(block, key);
  }

  /** The greatest key before the cursor. */
  get previous(): K | undefined {
    return this.#blocks[this.#block]?.[this.#at - 1] ?? this.#blocks[this.#block - 1]?.at(-1);
  }
  /** The key at the cursor, or the least key after it. */
  get next(): K | undefined {
    return this.#blocks[this.#block]?.[this.#at] ?? this.#blocks[this.#block + 1]?.[0];
  }

  /** @param key the key of the last `seek`, which is not contained */
  insertHere(key: K): void {
    const block = this.#blocks[this.#block];
    if (block === undefined) {
      this.#blocks.push([key]);
      return;
    }
    block.splice(this.#at, 0, key);
    if (block.length > BLOCK) this.#blocks.splice(this.#block + 1, 0, block.splice(BLOCK / 2));
  }

  /** @param key a key that is not contained */
  insert(key: K): void {
    this.seek(key);
    this.insertHere(key);
  }

  /** @returns false if the key is not contained */
  delete(key: K): boolean {
    this.seek(key);
    const block = this.#blocks[this.#block];
    if (block?.[this.#at] !== key) return false;
    block.splice(this.#at, 1);
    if (block.length === 0) this.#blocks.splice(this.#block, 1);
    return true;
  }

  /** Returns the least key that is greater than or equal to this one. */
  ceiling(key: K): K | undefined {
    this.seek(key);
    return this.next;
  }

  *[Symbol.iterator](): Generator<K> {
    for (const block of this.#blocks) yield* block;
  }

  /** Returns the index of the last block whose first key is at most `key`, or -1. */
  #blockOf(key: K): number {
    let low = 0;
    let high = this.#blocks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const first = this.#blocks[middle]?.[0];
      if (first !== undefined && first <= key) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

/** Returns the position of the first element that is at least `key`. */
function lowerBound<K extends number | bigint>(block: readonly K[], key: K): number {
  let low = 0;
  let high = block.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const element = block[middle];
    if (element !== undefined && element < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
