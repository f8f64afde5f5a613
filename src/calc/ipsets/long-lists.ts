// Applies long lists of members, such as the prefixes of a large network set, to an IP set in steps: a million members take
// seconds. A list that changes while it is applied is applied completely first; then only the difference to its latest
// version is applied. The memory for pending changes therefore depends on the number of lists, not of changes.
import { differingParts } from "../../lib/compare-lists.ts";
import type { MemberSet } from "./member-set.ts";

/** About 1 ms. */
export const MEMBERS_PER_STEP = 1000;

const EMPTY: readonly string[] = [];

interface Change<K> {
  readonly key: K;
  readonly target: readonly string[];
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** The number of additions, and then removals, that were applied. */
  done: number;
}

export interface LongListsOptions<K> {
  /** Returns the current list of an object; empty if it has none. */
  readonly desired: (key: K) => readonly string[];
  /** Lists with fewer members are forgotten when they are applied. The caller applies their further changes. */
  readonly minLength: number;
}

/** The long lists of one set. `K` identifies the object that a list comes from. */
export class LongLists<K> {
  readonly #members: MemberSet;
  readonly #options: LongListsOptions<K>;
  /** Lists that have been applied, or are being changed. */
  readonly #applied = new Map<K, readonly string[]>();
  readonly #changed = new Set<K>();
  #change: Change<K> | undefined;
  /** The number of changes that were applied completely. Changes are applied in the order in which the lists changed. */
  changesApplied = 0;

  constructor(members: MemberSet, options: LongListsOptions<K>) {
    this.#members = members;
    this.#options = options;
  }

  /** Returns true if the object's list must not be applied by others. */
  has(key: K): boolean {
    return this.#applied.has(key);
  }

  get isSettled(): boolean {
    return this.#change === undefined && this.#changed.size === 0;
  }

  /**
   * Must be called when the object's list has changed.
   * @param applied the list that the caller applied; ignored if `has` returns true
   */
  onChanged(key: K, applied: readonly string[] = EMPTY): void {
    if (!this.#applied.has(key)) this.#applied.set(key, applied);
    this.#changed.add(key);
  }

  /** Does one step. Does nothing if `isSettled` is true. */
  step(): void {
    this.#change ??= this.#nextChange();
    const change = this.#change;
    if (change === undefined) return;
    const { added, removed, key, target } = change;
    const end = Math.min(change.done + MEMBERS_PER_STEP, added.length + removed.length);
    // Added first, so that a member that another list has too is not removed in between.
    for (; change.done < end; change.done++)
      if (change.done < added.length) this.#members.add(added[change.done] as string);
      else this.#members.remove(removed[change.done - added.length] as string);
    if (change.done < added.length + removed.length) return;
    this.#change = undefined;
    this.changesApplied++;
    if (target.length >= this.#options.minLength || this.#changed.has(key)) this.#applied.set(key, target);
    else this.#applied.delete(key);
  }

  #nextChange(): Change<K> | undefined {
    for (const key of this.#changed) {
      this.#changed.delete(key);
      const target = this.#options.desired(key);
      const { a: removed, b: added } = differingParts(this.#applied.get(key) ?? EMPTY, target);
      return { key, target, added, removed, done: 0 };
    }
    return undefined;
  }
}
