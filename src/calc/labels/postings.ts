// A bag of things that belong to something, cheap to add to and to take from: taking out only counts, and the list is
// swept when half of it is stale. Whoever reads it says what still belongs. One entry costs one word, so that a label
// carried by every endpoint of a large cluster costs as much as an array of them.

/** What can lie in a bag: the stamp tells apart what was already seen in one walk over several bags. */
export interface Posted {
  stamp: number;
}

const SMALL = 16;

export class Postings<T extends Posted> {
  #list: T[] = [];
  /** How many belong, not counting stale entries. */
  live = 0;

  add(thing: T, belongs: (thing: T) => boolean, walk: () => number): void {
    this.live++;
    this.#list.push(thing);
    this.#sweep(belongs, walk);
  }

  /** One thing no longer belongs: `belongs` says so of it by now. */
  remove(belongs: (thing: T) => boolean, walk: () => number): void {
    this.live--;
    this.#sweep(belongs, walk);
  }

  /** Each thing that belongs and does not bear this walk's stamp yet. */
  *fresh(belongs: (thing: T) => boolean, walk: number): Generator<T> {
    for (const thing of this.#list) {
      if (thing.stamp === walk || !belongs(thing)) continue;
      thing.stamp = walk;
      yield thing;
    }
  }

  /** Everything in the bag, stale entries too: for estimates. */
  entries(): Iterable<T> {
    return this.#list;
  }

  #sweep(belongs: (thing: T) => boolean, walk: () => number): void {
    if (this.live === 0) this.#list = [];
    else if (this.#list.length > SMALL + 2 * this.live) this.#list = [...this.fresh(belongs, walk())];
  }
}
