// Computes which chains are needed: those that a kernel chain leads to, over any number of jumps. Managers set chains in
// every table; only needed chains are written.

const NO_TARGETS: ReadonlySet<string> = new Set();

export class ChainGraph {
  /** The chains to which each chain has jumps. */
  readonly #targets = new Map<string, ReadonlySet<string>>();
  /** Number of needed chains and holds that lead to each chain. */
  readonly #references = new Map<string, number>();
  readonly #onChange: (name: string) => void;

  /** @param onChange called when a chain becomes needed, or is not needed any more */
  constructor(onChange: (name: string) => void) {
    this.#onChange = onChange;
  }

  isNeeded(name: string): boolean {
    return this.#references.has(name);
  }

  targetsOf(name: string): ReadonlySet<string> {
    return this.#targets.get(name) ?? NO_TARGETS;
  }

  set(name: string, targets: ReadonlySet<string>): void {
    const before = this.#targets.get(name);
    this.#targets.set(name, targets);
    if (!this.#references.has(name)) return;
    // First the new targets, so that a target of both is needed all the time.
    for (const target of targets) this.#acquire(target);
    if (before !== undefined) for (const target of before) this.#release(target);
  }

  /** The chain has no content any more. It may still be needed. */
  delete(name: string): void {
    const before = this.#targets.get(name);
    if (before === undefined) return;
    this.#targets.delete(name);
    if (this.#references.has(name)) for (const target of before) this.#release(target);
  }

  /** Makes a chain needed for a reason outside the graph: a hook leads to it, or it is always written. */
  hold(name: string): void {
    this.#acquire(name);
  }
  release(name: string): void {
    this.#release(name);
  }

  #acquire(name: string): void {
    const count = this.#references.get(name) ?? 0;
    this.#references.set(name, count + 1);
    if (count > 0) return;
    this.#onChange(name);
    for (const target of this.#targets.get(name) ?? []) this.#acquire(target);
  }

  #release(name: string): void {
    const count = this.#references.get(name) ?? 0;
    if (count > 1) {
      this.#references.set(name, count - 1);
      return;
    }
    this.#references.delete(name);
    this.#onChange(name);
    for (const target of this.#targets.get(name) ?? []) this.#release(target);
  }
}
