// Computes the order in which a host tries the blocks of a pool: upwards from a start derived from the host's name, wrapping
// around at the end. So hosts spread over the pool and rarely conflict. Blocks are computed by number and never enumerated,
// because an IPv6 /48 has 2^74 of them.
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

  /** @param randomSeed used instead of the host's name if a block is a single address, as in Calico */
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

  /** Returns the block at a position of the order, counted from 0. */
  at(position: bigint): Cidr {
    const index = (this.#start + position) % this.count;
    const address = addressFromBigInt(this.#base + (index << this.#hostBits), ipVersion(this.pool.cidr));
    return `${address}/${this.pool.blockSize}` as Cidr;
  }

  /** Returns the position of a block of this pool. */
  positionOf(block: Cidr): bigint {
    const index = (addressToBigInt(cidrAddress(block)) - this.#base) >> this.#hostBits;
    return (index - this.#start + this.count) % this.count;
  }

  /** Returns the number of positions from here to the wrap-around. */
  untilWrap(position: bigint): bigint {
    return this.count - ((this.#start + position) % this.count);
  }

  /** Yields all blocks in order. Large pools must not be iterated to the end. */
  *[Symbol.iterator](): Generator<Cidr> {
    for (let position = 0n; position < this.count; position++) yield this.at(position);
  }
}
