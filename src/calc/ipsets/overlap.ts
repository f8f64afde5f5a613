// Keeps a set free of prefixes that lie inside another: nftables interval sets refuse overlaps. A member that a wider one
// covers is held back, and comes out when the last cover goes. What is programmed is always the outermost members, no
// matter in which order they came. Sets of single addresses, which are most, need no trie at all.
import { type Cidr, cidrLength, type IpVersion, ipVersion } from "../../lib/ip.ts";
import { PrefixTrie } from "../../lib/prefix-trie.ts";

interface FamilyState {
  /** How many prefixes are wider than one address; the trie exists while there are any. */
  wide: number;
  trie: PrefixTrie<true> | undefined;
}

export class OverlapFilter {
  readonly #families: Readonly<Record<IpVersion, FamilyState>> = {
    4: { wide: 0, trie: undefined },
    6: { wide: 0, trie: undefined },
  };
  readonly #members: Iterable<string>;
  readonly #emit: { added(cidr: string): void; removed(cidr: string): void };

  /** @param members all of the set, suppressed ones too, up to date whenever the filter is told of a change */
  constructor(members: Iterable<string>, emit: { added(cidr: string): void; removed(cidr: string): void }) {
    this.#members = members;
    this.#emit = emit;
  }

  added(cidr: Cidr): void {
    const family = this.#families[ipVersion(cidr)];
    const wide = isWide(cidr);
    if (wide) family.wide++;
    if (wide && family.trie === undefined) family.trie = plant(this.#members, ipVersion(cidr));
    else family.trie?.set(cidr, true);
    if (family.trie !== undefined && isCovered(family.trie, cidr)) return;
    this.#emit.added(cidr);
    if (family.trie !== undefined && wide)
      for (const [swallowed] of family.trie.closestWithin(cidr)) this.#emit.removed(swallowed);
  }

  removed(cidr: Cidr): void {
    const family = this.#families[ipVersion(cidr)];
    const { trie } = family;
    const wide = isWide(cidr);
    trie?.delete(cidr);
    const covered = trie !== undefined && isCovered(trie, cidr);
    const freed = trie !== undefined && wide && !covered ? [...trie.closestWithin(cidr)] : [];
    if (wide && --family.wide === 0) family.trie = undefined;
    if (covered) return;
    for (const [uncovered] of freed) this.#emit.added(uncovered);
    this.#emit.removed(cidr);
  }
}

function plant(members: Iterable<string>, version: IpVersion): PrefixTrie<true> {
  const trie = new PrefixTrie<true>();
  for (const member of members as Iterable<Cidr>) if (ipVersion(member) === version) trie.set(member, true);
  return trie;
}

const isWide = (cidr: Cidr): boolean => cidrLength(cidr) < (ipVersion(cidr) === 4 ? 32 : 128);

function isCovered(trie: PrefixTrie<true>, cidr: Cidr): boolean {
  for (const [outer] of trie.covering(cidr)) return outer !== cidr;
  return false;
}
