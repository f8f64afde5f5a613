// Reproduces the random numbers of Go's `math/rand` for a seed. Calico selects the first block of a host with them, so a host
// that is reinstalled with Calico or calico-ts uses the same blocks again.
import { GO_RANDOM_TABLE } from "../gen/go-random-table.ts";

const LENGTH = 607;
const TAP = 273;
const MODULUS = 2147483647; // 2^31 - 1, also the modulus of the seeding generator

export class GoRandom {
  readonly #state = new BigUint64Array(LENGTH);
  #tap = 0;
  #feed = LENGTH - TAP;

  constructor(seed: number) {
    const table = Buffer.from(GO_RANDOM_TABLE, "base64");
    let x = seed % MODULUS;
    if (x < 0) x += MODULUS;
    if (x === 0) x = 89482311;
    const next = (): bigint => {
      x = (48271 * x) % MODULUS; // below 2^47: exact
      return BigInt(x);
    };
    for (let i = 0; i < 20; i++) next();
    for (let i = 0; i < LENGTH; i++)
      this.#state[i] = (next() << 40n) ^ (next() << 20n) ^ next() ^ table.readBigUInt64LE(i * 8);
  }

  uint64(): bigint {
    this.#tap = (this.#tap + LENGTH - 1) % LENGTH;
    this.#feed = (this.#feed + LENGTH - 1) % LENGTH;
    // The array wraps the sum to 64 bits.
    this.#state[this.#feed] = (this.#state[this.#feed] ?? 0n) + (this.#state[this.#tap] ?? 0n);
    return this.#state[this.#feed] ?? 0n;
  }

  uint32(): bigint {
    return (this.uint64() >> 31n) & 0xffffffffn;
  }

  /** Returns a number below `limit` as Go's `big.Int.Rand` does: 64-bit words, low word first, repeated while too large. */
  below(limit: bigint): bigint {
    if (limit <= 0n) return 0n;
    const bits = limit.toString(2).length;
    const words = Math.ceil(bits / 64);
    const mask = (1n << BigInt(bits)) - 1n;
    for (;;) {
      let value = 0n;
      for (let i = 0n; i < words; i++) value |= (this.uint32() | (this.uint32() << 32n)) << (64n * i);
      value &= mask;
      if (value < limit) return value;
    }
  }
}

/** FNV-1 (not 1a), 32 bits, over UTF-8. */
export function fnv32(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = (Math.imul(hash, 0x01000193) ^ byte) >>> 0;
  return hash;
}
