// Detects whether another program wrote rules. The nft variant of iptables writes to nftables, whose transactions the kernel
// counts. If it counted as many as calico-ts made, the last known state is still valid, and the tables need not be read
// again, which would be most of the cost of a small change.
//
// Legacy tables have only a fingerprint (legacy-watch.ts), which is not sufficient for that.

export class ForeignWrites {
  readonly #generation: () => number;
  #lastGeneration: number;
  /** Transactions of calico-ts since `#lastGeneration` was read. */
  #own = 0;
  #running = 0;
  #epoch = 0;

  /** @param generation returns the number of nftables transactions in this network namespace */
  constructor(generation: () => number) {
    this.#generation = generation;
    this.#lastGeneration = generation();
  }

  get isWriting(): boolean {
    return this.#running > 0;
  }

  /** Changes if another program wrote, or may have written. While calico-ts itself writes, the value may be outdated. */
  epoch(): number {
    if (this.#running === 0) this.#count();
    return this.#epoch;
  }

  /** Runs a write of calico-ts that makes one transaction. */
  async during(write: () => Promise<void>): Promise<void> {
    if (this.#running++ === 0) this.#count();
    try {
      await write();
      this.#own++;
    } catch (error) {
      this.#epoch++; // it is unknown whether the transaction was made
      throw error;
    } finally {
      if (--this.#running === 0) this.#count();
    }
  }

  /** Must be called after another transaction of calico-ts. */
  countOwnWrite(): void {
    this.#own++;
  }

  #count(): void {
    const generation = this.#generation();
    if (generation !== generationAfter(this.#lastGeneration, this.#own)) this.#epoch++;
    this.#lastGeneration = generation;
    this.#own = 0;
  }
}

/** Generations are 32 bits wide and never 0. */
function generationAfter(start: number, transactions: number): number {
  let generation = start;
  for (let i = 0; i < transactions; i++) generation = (generation + 1) >>> 0 || 1;
  return generation;
}
