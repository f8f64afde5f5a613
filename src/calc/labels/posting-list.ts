// A list of entries with cheap insertion and removal. Removal only decrements a count; removed entries stay in the array
// until they are more than half of it. Callers pass `isLive` to skip removed entries. An entry costs one pointer, so that
// a label that every endpoint of a large cluster has costs no more than an array of the endpoints.

/** `stamp` is the number of the last traversal that returned the entry; one traversal may span several lists. */
export interface Posted {
  stamp: number;
}

const MAX_REMOVED_IN_SHORT_LIST = 16;

export class PostingList<T extends Posted> {
  #entries: T[] = [];
  /** The number of entries, without the removed ones. */
  liveCount = 0;

  add(entry: T, isLive: (entry: T) => boolean, newStamp: () => number): void {
    this.liveCount++;
    this.#entries.push(entry);
    this.#compact(isLive, newStamp);
  }

  /** Removes one entry, for which `isLive` already returns false. */
  remove(isLive: (entry: T) => boolean, newStamp: () => number): void {
    this.liveCount--;
    this.#compact(isLive, newStamp);
  }

  /** Yields each live entry that this traversal has not visited yet, and sets its stamp. */
  *unvisited(isLive: (entry: T) => boolean, stamp: number): Generator<T> {
    for (const entry of this.#entries) {
      if (entry.stamp === stamp || !isLive(entry)) continue;
      entry.stamp = stamp;
      yield entry;
    }
  }

  /** Returns all entries, including removed ones: for estimates. */
  entries(): Iterable<T> {
    return this.#entries;
  }

  #compact(isLive: (entry: T) => boolean, newStamp: () => number): void {
    if (this.liveCount === 0) this.#entries = [];
    else if (this.#entries.length > MAX_REMOVED_IN_SHORT_LIST + 2 * this.liveCount)
      this.#entries = [...this.unvisited(isLive, newStamp())];
  }
}
