// In which order a host goes through the blocks of a pool: from a start that its name decides, upwards and around.
// Hosts thus spread over the pool and rarely meet. Blocks are numbered, never enumerated: a /48 has 2^74 of them.
import {
  addressBits,
  addressFromBigInt,
  addressToBigInt,
  type Cidr,
  cidrAddress,
  cidrLength,
  ipVersion,
} from "../../lib/ip/ip.ts";
import { fnv32, GoRandom } from "./go-random.ts";

export interface PoolShape {
  readonly cidr: Cidr;
  readonly blockSize: number;
}

export class BlockOrder {
  readonly count: bigint;
  readonly #base: bigint;
  readonly #hostBits: bigint;
  readonly #start: bigint;

  /** @param randomSeed for pools of single addresses, whose start varies from call to call */
  constructor(
    readonly pool: PoolShape,
    host: string,
    randomSeed: () => number,
  ) {
    const bits = addressBits(ipVersion(pool.cidr));
    this.#hostBits = BigInt(bits - pool.blockSize);
    this.#base = addressToBigInt(cidrAddress(pool.cidr));
    this.count = 1n << BigInt(pool.blockSize - cidrLength(pool.cidr));
    const seed = pool.blockSize === bits ? randomSeed() : fnv32(host);
    this.#start = this.count === 1n ? 0n : new GoRandom(seed).below(this.count);
  }

  /** The block at a place of the order, from 0. */
  at(place: bigint): Cidr {
    const index = (this.#start + place) % this.count;
    const address = addressFromBigInt(this.#base + (index << this.#hostBits), ipVersion(this.pool.cidr));
    return `${address}/${this.pool.blockSize}` as Cidr;
  }

  /** Where a block of this pool stands in the order. */
  placeOf(block: Cidr): bigint {
    const index = (addressToBigInt(cidrAddress(block)) - this.#base) >> this.#hostBits;
    return (index - this.#start + this.count) % this.count;
  }

  /** How many places from here on go upwards without a wrap. */
  untilWrap(place: bigint): bigint {
    return this.count - ((this.#start + place) % this.count);
  }

  /** All blocks in order; ask for no more than needed. */
  *[Symbol.iterator](): Generator<Cidr> {
    for (let place = 0n; place < this.count; place++) yield this.at(place);
  }
}
