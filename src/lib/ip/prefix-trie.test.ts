import { expect, test } from "bun:test";
import fc from "fast-check";
import { addressFromBigInt, type Cidr, cidrContains, maskCidr } from "./ip.ts";
import { PrefixTrie } from "./prefix-trie.ts";

// Few distinct bits, so that prefixes nest and collide often.
const arbCidr = (version: 4 | 6) =>
  fc.tuple(fc.nat(255), fc.nat(8)).map(([bits, length]) => {
    const width = version === 4 ? 32n : 128n;
    return maskCidr(addressFromBigInt(BigInt(bits) << (width - 8n), version), length);
  });
const arbSteps = (version: 4 | 6) =>
  fc.array(fc.record({ cidr: arbCidr(version), remove: fc.boolean() }), { maxLength: 60 });

for (const version of [4, 6] as const)
  test(`the trie finds the same entries as a search in a list, IPv${version}`, () =>
    fc.assert(
      fc.property(arbSteps(version), arbCidr(version), (steps, probe) => {
        const trie = new PrefixTrie<number>();
        const plain = new Map<Cidr, number>();
        for (const [i, { cidr, remove }] of steps.entries()) {
          if (remove) expect(trie.delete(cidr)).toBe(plain.delete(cidr));
          else {
            trie.set(cidr, i);
            plain.set(cidr, i);
          }
        }
        const inside = [...plain].filter(([cidr]) => cidrContains(probe, cidr));
        const around = [...plain].filter(([cidr]) => cidrContains(cidr, probe));
        const sorted = (entries: Iterable<[Cidr, number]>) => [...entries].sort();
        expect(trie.size).toBe(plain.size);
        expect(trie.get(probe)).toBe(plain.get(probe));
        expect(sorted(trie.entries())).toEqual(sorted(plain));
        expect(sorted(trie.within(probe))).toEqual(sorted(inside));
        expect(sorted(trie.covering(probe))).toEqual(sorted(around));
      }),
      { numRuns: 500 },
    ));
