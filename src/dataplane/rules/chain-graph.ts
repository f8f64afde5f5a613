// Which chains are needed: those a kernel chain leads to, over any number of jumps. Managers offer chains to every
// table; only the needed ones are written.

export class ChainGraph {
  /** What each known chain leads to. */
  readonly #targets = new Map<string, ReadonlySet<string>>();
  /** How many needed chains (or hooks) lead to each chain. */
  readonly #references = new Map<string, number>();
  readonly #onChange: (name: string) => void;

  /** @param onChange called when a chain begins or ceases to be needed */
  constructor(onChange: (name: string) => void) {
    this.#onChange = onChange;
  }

  isNeeded(name: string): boolean {
    return this.#references.has(name);
  }

  /** What the chain leads to from now on. */
  set(name: string, targets: ReadonlySet<string>): void {
    const before = this.#targets.get(name);
    this.#targets.set(name, targets);
    if (!this.#references.has(name)) return;
    // New ones first, so that what both lead to is never let go.
    for (const target of targets) this.#acquire(target);
    if (before !== undefined) for (const target of before) this.#release(target);
  }

  /** The chain is no longer offered; what needs it still does. */
  delete(name: string): void {
    const before = this.#targets.get(name);
    if (before === undefined) return;
    this.#targets.delete(name);
    if (this.#references.has(name)) for (const target of before) this.#release(target);
  }

  /** A reason outside the graph to need a chain: a hook, or a chain that is always written. */
  hold(name: string): void {
    this.#acquire(name);
  }
  letGo(name: string): void {
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
