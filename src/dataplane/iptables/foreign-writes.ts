// Whether somebody else wrote rules since we last looked. The nft variant of the tools writes nftables, where the kernel
// counts transactions: were there just as many as we made, then what we read or wrote ourselves is still there, and
// reading it again (most of what a small change would cost) tells nothing new. Of the legacy tables only the
// outline tells (`legacy-watch.ts`), which is not enough to trust.

export class ForeignWrites {
  readonly #generation: () => number;
  #known: number;
  /** Ours since then. */
  #ours = 0;
  #running = 0;
  #epoch = 0;

  /** @param generation the kernel's count of transactions in this network namespace */
  constructor(generation: () => number) {
    this.#generation = generation;
    this.#known = generation();
  }

  get isWriting(): boolean {
    return this.#running > 0;
  }

  /** Another number than before: somebody else wrote, or may have. While a write of ours runs that is not known yet. */
  epoch(): number {
    if (this.#running === 0) this.#count();
    return this.#epoch;
  }

  /** Makes a write of ours, of one transaction. */
  async during(write: () => Promise<void>): Promise<void> {
    if (this.#running++ === 0) this.#count();
    try {
      await write();
      this.#ours++;
    } catch (error) {
      this.#epoch++; // who knows how far it came
      throw error;
    } finally {
      if (--this.#running === 0) this.#count();
    }
  }

  /** One more transaction was ours. */
  wrote(): void {
    this.#ours++;
  }

  #count(): void {
    const now = this.#generation();
    if (now !== after(this.#known, this.#ours)) this.#epoch++;
    this.#known = now;
    this.#ours = 0;
  }
}

/** Generations are 32 bits wide and never 0. */
function after(generation: number, transactions: number): number {
  let now = generation;
  for (let i = 0; i < transactions; i++) now = (now + 1) >>> 0 || 1;
  return now;
}
