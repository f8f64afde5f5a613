// Generates pseudo-random numbers from a seed (sfc32, http://pracrand.sourceforge.net/RNG_engines.txt).

export class Random {
  #a: number;
  #b = 0x9e3779b9;
  #c = 0x243f6a88;
  #counter = 1;

  constructor(seed: number) {
    this.#a = seed >>> 0;
    for (let i = 0; i < 12; i++) this.#next();
  }

  /** Returns an integer from 0 to `below` - 1. */
  below(below: number): number {
    return below <= 1 ? 0 : this.#next() % below;
  }

  /** Returns true with probability 1 / `times`. */
  oneIn(times: number): boolean {
    return this.below(times) === 0;
  }

  pick<T>(items: readonly [T, ...T[]]): T;
  pick<T>(items: readonly T[]): T | undefined;
  pick<T>(items: readonly T[]): T | undefined {
    return items[this.below(items.length)];
  }

  byte(): number {
    return this.#next() & 255;
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.byte());
  }

  #next(): number {
    const result = (this.#a + this.#b + this.#counter++) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + result) | 0;
    return result >>> 0;
  }
}
