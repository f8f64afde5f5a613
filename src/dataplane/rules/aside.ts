// What the kernel refused and stand-ins are written for: rules by their place, each with how far its stand-in is from
// it, and sets with every rule that names them.
import type { Chain, Layer, Rule, SetId } from "./rule.ts";
import { namesAny, type Place, placeIn, standInsFor, withStandIns } from "./stand-in.ts";

/** The place of a rule of the tree: in a chain, by the kernel's name of that, counted over all of `chainRules`. */
export interface RuleAt {
  readonly chain: string;
  readonly index: number;
}
export interface AsideAt extends RuleAt {
  /** Which of its stand-ins is wanted. */
  readonly level: number;
}

export class Aside {
  readonly #rules = new Map<string, Map<number, number>>();
  readonly #sets = new Set<SetId>();
  #version = 0;

  /** Another number after every change. */
  get version(): number {
    return this.#version;
  }
  get isEmpty(): boolean {
    return this.#rules.size === 0 && this.#sets.size === 0;
  }
  get sets(): ReadonlySet<SetId> {
    return this.#sets;
  }

  level({ chain, index }: RuleAt): number | undefined {
    return this.#rules.get(chain)?.get(index);
  }

  /** What shall be written at this place; nothing when it is the rule itself. */
  standIn(at: RuleAt, rule: Rule, place: Place): Rule | undefined {
    const level = this.level(at);
    if (level === undefined && !namesAny(rule, this.#sets)) return undefined;
    const candidates = standInsFor(rule, place).slice(level ?? 0);
    return candidates.find((candidate) => !namesAny(candidate, this.#sets));
  }

  /** The chain of this name as it shall be written. */
  stoodIn<C extends Chain>(name: string, layer: Layer, offered: C): C {
    if (this.isEmpty) return offered; // nearly always
    const place = placeIn(layer, offered);
    return withStandIns(offered, (index, rule) => this.standIn({ chain: name, index }, rule, place));
  }

  set({ chain, index, level }: AsideAt): void {
    let levels = this.#rules.get(chain);
    if (levels === undefined) this.#rules.set(chain, (levels = new Map()));
    levels.set(index, level);
    this.#version++;
  }

  /** What stands at this place is refused: the next stand-in is wanted. False when there is none. */
  raise(at: RuleAt, rule: Rule, place: Place): boolean {
    const level = this.nextLevel(at, rule, place);
    if (level >= standInsFor(rule, place).length) return false;
    this.set({ ...at, level });
    return true;
  }

  /** Which stand-in would come after what stands there now. */
  nextLevel(at: RuleAt, rule: Rule, place: Place): number {
    const now = this.standIn(at, rule, place);
    return now === undefined ? 0 : standInsFor(rule, place).findIndex((each) => Bun.deepEquals(each, now)) + 1;
  }

  addSet(set: SetId): void {
    this.#sets.add(set);
    this.#version++;
  }

  deleteSet(set: SetId): void {
    if (this.#sets.delete(set)) this.#version++;
  }

  /** The chain is another now. */
  forget(chain: string): void {
    if (this.#rules.delete(chain)) this.#version++;
  }

  /** All rules that are here for themselves, not for a set. */
  rules(): AsideAt[] {
    return [...this.#rules].flatMap(([chain, levels]) =>
      [...levels].map(([index, level]) => ({ chain, index, level })),
    );
  }

  /** Gives the chains they stood in. */
  clearRules(): string[] {
    const chains = [...this.#rules.keys()];
    this.#rules.clear();
    this.#version++;
    return chains;
  }

  /** Whether there were any. */
  clearSets(): boolean {
    const hadSets = this.#sets.size > 0;
    this.#sets.clear();
    this.#version++;
    return hadSets;
  }
}
