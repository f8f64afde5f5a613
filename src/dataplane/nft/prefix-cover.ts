// Prefixes without those that lie inside another one: an nftables set of intervals refuses overlaps.
import { type Cidr, cidrAddress, cidrContains, cidrLength, type IpVersion, maskCidr } from "../../lib/ip.ts";

export class PrefixCover {
  readonly #all = new Set<Cidr>();
  /** How many prefixes have each length: only lengths in use are tried. */
  readonly #lengths = new Map<number, number>();
  readonly #hostLength: number;
  readonly #onChange: (prefix: Cidr, isCovered: boolean) => void;

  /** @param onChange a prefix must be (true: no longer, or not any more) left out of the set */
  constructor(version: IpVersion, onChange: (prefix: Cidr, isOutermost: boolean) => void) {
    this.#hostLength = version === 4 ? 32 : 128;
    this.#onChange = onChange;
  }

  /** Whether some prefix is more than one address. */
  get hasNets(): boolean {
    return this.#lengths.size > (this.#lengths.has(this.#hostLength) ? 1 : 0);
  }
  get size(): number {
    return this.#all.size;
  }

  add(prefix: Cidr): void {
    if (this.#all.has(prefix)) return;
    const length = cidrLength(prefix);
    if (this.#coveredBy(prefix, length) === undefined) {
      this.#onChange(prefix, true);
      if (length < this.#hostLength)
        for (const inner of this.#all)
          if (cidrContains(prefix, inner) && this.#coveredBy(inner, cidrLength(inner)) === undefined)
            this.#onChange(inner, false);
    }
    this.#all.add(prefix);
    this.#lengths.set(length, (this.#lengths.get(length) ?? 0) + 1);
  }

  delete(prefix: Cidr): void {
    if (!this.#all.delete(prefix)) return;
    const length = cidrLength(prefix);
    const count = (this.#lengths.get(length) ?? 1) - 1;
    if (count === 0) this.#lengths.delete(length);
    else this.#lengths.set(length, count);
    if (this.#coveredBy(prefix, length) !== undefined) return;
    this.#onChange(prefix, false);
    if (length < this.#hostLength)
      for (const inner of this.#all)
        if (cidrContains(prefix, inner) && this.#coveredBy(inner, cidrLength(inner)) === undefined)
          this.#onChange(inner, true);
  }

  has(prefix: Cidr): boolean {
    return this.#all.has(prefix);
  }
  [Symbol.iterator](): Iterator<Cidr> {
    return this.#all.values();
  }

  /** A wider prefix of the set that holds this one. */
  #coveredBy(prefix: Cidr, length: number): Cidr | undefined {
    if (this.#lengths.size === 0 || (this.#lengths.size === 1 && this.#lengths.has(length))) return undefined;
    const address = cidrAddress(prefix);
    for (const wider of this.#lengths.keys()) {
      if (wider >= length) continue;
      const candidate = maskCidr(address, wider);
      if (this.#all.has(candidate)) return candidate;
    }
    return undefined;
  }
}

/** The outermost prefixes of a list, for sets inside rules. */
export function outermost(prefixes: readonly Cidr[], version: IpVersion): Cidr[] {
  const kept = new Set<Cidr>();
  const cover = new PrefixCover(version, (prefix, isOutermost) => {
    if (isOutermost) kept.add(prefix);
    else kept.delete(prefix);
  });
  for (const prefix of prefixes) cover.add(prefix);
  return [...kept];
}
