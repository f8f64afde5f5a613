// A sorted collection of distinct numbers (or bigints) that can be searched from any position. An insertion moves at most
// one block, so the cost of a change hardly depends on the number of keys. A key takes about 8 bytes (a bigint 40).

const BLOCK = 256;

export class SortedKeys<K extends number | bigint> {
  /** Sorted, none empty; every key of a block is less than all keys of the next. */
  readonly #blocks: K[][] = [];
  // The place that was sought last.
  #block = 0;
  #at = 0;

  /** @param keys sorted and distinct */
  constructor(keys: ArrayLike<K> = []) {
    for (let i = 0; i < keys.length; i += BLOCK / 2)
      this.#blocks.push(Array.prototype.slice.call(keys, i, i + BLOCK / 2));
  }

  /** Moves to the place where the key is, or would be inserted. */
  seek(key: K): void {
    this.#block = Math.max(0, this.#blockOf(key));
    const block = this.#blocks[this.#block];
    this.#at = block === undefined ? 0 : lowerBound(block, key);
  }

  /** The greatest key that is less than the one that was sought. */
  get previous(): K | undefined {
    return this.#blocks[this.#block]?.[this.#at - 1] ?? this.#blocks[this.#block - 1]?.at(-1);
  }
  /** The least key that is not less than the one that was sought. */
  get next(): K | undefined {
    return this.#blocks[this.#block]?.[this.#at] ?? this.#blocks[this.#block + 1]?.[0];
  }

  /** @param key the one that was sought last, and was not found */
  insertHere(key: K): void {
    const block = this.#blocks[this.#block];
    if (block === undefined) {
      this.#blocks.push([key]);
      return;
    }
    block.splice(this.#at, 0, key);
    if (block.length > BLOCK) this.#blocks.splice(this.#block + 1, 0, block.splice(BLOCK / 2));
  }

  /** @param key one that is not contained yet */
  insert(key: K): void {
    this.seek(key);
    this.insertHere(key);
  }

  /** @returns false if it was not contained */
  delete(key: K): boolean {
    this.seek(key);
    const block = this.#blocks[this.#block];
    if (block?.[this.#at] !== key) return false;
    block.splice(this.#at, 1);
    if (block.length === 0) this.#blocks.splice(this.#block, 1);
    return true;
  }

  /** The least key that is at least this one. */
  ceiling(key: K): K | undefined {
    this.seek(key);
    return this.next;
  }

  *[Symbol.iterator](): Generator<K> {
    for (const block of this.#blocks) yield* block;
  }

  /** Index of the last block whose first key is at most this one; -1 if there is none. */
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

/** Position of the first element that is at least the key. */
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
