// A sorted collection of distinct numbers (or bigints) that can be searched from any position. An insertion moves at most
// one block, so the cost of a change hardly depends on the number of keys. A key takes about 8 bytes (a bigint 40).

const BLOCK = 512;

export class SortedKeys<K extends number | bigint> {
  /** Sorted, none empty; every key of a block is less than all keys of the next. */
  readonly #blocks: K[][] = [];

  /** @param keys sorted and distinct */
  constructor(keys: ArrayLike<K> = []) {
    for (let i = 0; i < keys.length; i += BLOCK / 2)
      this.#blocks.push(Array.prototype.slice.call(keys, i, i + BLOCK / 2));
  }

  /** @param key one that is not contained yet */
  insert(key: K): void {
    const index = Math.max(0, this.#blockOf(key));
    const block = this.#blocks[index];
    if (block === undefined) {
      this.#blocks.push([key]);
      return;
    }
    block.splice(lowerBound(block, key), 0, key);
    if (block.length > BLOCK) this.#blocks.splice(index + 1, 0, block.splice(BLOCK / 2));
  }

  /** @returns false if it was not contained */
  delete(key: K): boolean {
    const index = this.#blockOf(key);
    const block = this.#blocks[index];
    if (block === undefined) return false;
    const at = lowerBound(block, key);
    if (block[at] !== key) return false;
    block.splice(at, 1);
    if (block.length === 0) this.#blocks.splice(index, 1);
    return true;
  }

  /** The greatest key that is at most this one. */
  floor(key: K): K | undefined {
    const block = this.#blocks[this.#blockOf(key)];
    if (block === undefined) return undefined;
    const at = lowerBound(block, key);
    return block[at] === key ? key : block[at - 1];
  }

  /** The least key that is at least this one. */
  ceiling(key: K): K | undefined {
    const index = this.#blockOf(key);
    const block = this.#blocks[index];
    const found = block === undefined ? undefined : block[lowerBound(block, key)];
    return found ?? this.#blocks[index + 1]?.[0];
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
