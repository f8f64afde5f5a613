import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Cidr, cidrContains, type IpVersion, parseCidr } from "./ip.ts";
import { outermost, PrefixCover } from "./prefix-cover.ts";

/** Few distinct bits, so that prefixes often contain each other; the last ones end at the last address. */
const arbPrefix = (version: IpVersion): fc.Arbitrary<Cidr> =>
  fc
    .tuple(fc.constantFrom(0, 1, 2, 127, 128, 254, 255), fc.constantFrom(0, 1, 255), fc.integer({ min: 0, max: 16 }))
    .map(([high, low, host]) => {
      if (version === 4) return parseCidr(`${high}.255.255.${low}/${32 - host - (host > 8 ? 12 : 0)}`);
      return parseCidr(`${high.toString(16)}00:ffff::ff${low.toString(16).padStart(2, "0")}/${128 - host * 8}`);
    });

const isOutermost = (prefix: Cidr, all: Iterable<Cidr>): boolean => {
  for (const other of all) if (other !== prefix && cidrContains(other, prefix)) return false;
  return true;
};

for (const version of [4, 6] as const) {
  test(`IPv${version}: the listener has exactly the outermost prefixes after every change`, () =>
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.boolean(), arbPrefix(version)), { maxLength: 60 }),
        fc.boolean(),
        (changes, startsWithHosts) => {
          const reported = new Set<Cidr>();
          const cover = new PrefixCover(version, {
            added: (prefix) => {
              expect(reported.has(prefix)).toBe(false);
              reported.add(prefix);
            },
            removed: (prefix) => expect(reported.delete(prefix)).toBe(true),
          });
          const all = new Set<Cidr>();
          if (startsWithHosts)
            for (const [, prefix] of changes.slice(0, 20)) {
              const host = parseCidr(prefix.replace(/\/.*/, ""));
              all.add(host);
              cover.add(host);
            }
          for (const [isAdded, prefix] of changes) {
            if (isAdded) {
              all.add(prefix);
              cover.add(prefix);
            } else {
              all.delete(prefix);
              cover.delete(prefix);
            }
            const expected = [...all].filter((one) => isOutermost(one, all)).sort();
            expect([...reported].sort()).toEqual(expected);
            expect([...cover.outermost()].sort()).toEqual(expected);
            expect(cover.size).toBe(all.size);
            expect(cover.hasNets).toBe([...all].some((one) => !one.endsWith(version === 4 ? "/32" : "/128")));
          }
        },
      ),
    ));

  test(`IPv${version}: outermost() of a list equals the outermost prefixes by definition`, () =>
    fc.assert(
      fc.property(fc.array(arbPrefix(version), { maxLength: 40 }), (list) => {
        const expected = [...new Set(list)].filter((one) => isOutermost(one, list)).sort();
        expect(outermost(list, version).sort()).toEqual(expected);
      }),
    ));
}

const address = (n: number): string => `${10 + (n >> 20)}.${(n >> 12) & 255}.${(n >> 4) & 255}.${(n & 15) * 16}`;

test("the cost of a change does not depend on the number of prefixes", () => {
  const microseconds = (size: number): number => {
    const cover = new PrefixCover(4, { added: () => {}, removed: () => {} });
    for (let n = 0; n < size; n++) cover.add(`${address(n)}/${n % 3 === 0 ? 28 : 32}` as Cidr);
    const times: number[] = [];
    for (let round = 0; round < 40; round++) {
      const start = performance.now();
      for (let n = 0; n < 50; n++) {
        const prefix = `${address((n * 7919) % size).replace(/\d+$/, "0")}/24` as Cidr;
        cover.add(prefix);
        cover.delete(prefix);
      }
      times.push(performance.now() - start);
    }
    return Math.min(...times) * 20;
  };
  const small = microseconds(2000);
  const large = microseconds(200_000);
  expect({ small, large, isFlat: large < 8 * small }).toMatchObject({ isFlat: true });
});

test("200,000 prefixes of mixed lengths take well below a second", () => {
  const prefixes = Array.from({ length: 200_000 }, (_, n) => `${address(n)}/${n % 3 === 0 ? 28 : 32}` as Cidr);
  const before = process.cpuUsage();
  let count = 0;
  const cover = new PrefixCover(4, { added: () => count++, removed: () => count-- });
  for (const prefix of prefixes) cover.add(prefix);
  const list = outermost(prefixes, 4);
  const { user } = process.cpuUsage(before);
  expect([cover.size, count, list.length]).toEqual([200_000, 200_000, 200_000]);
  expect(user / 1e6).toBeLessThan(2); // 0.3 s on one core of 2024; the quadratic way took hours
});
