import { expect, test } from "bun:test";
import fc from "fast-check";
import { addressFromBigInt, maskCidr, parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { Reservations } from "./reservations.ts";

const of = (...cidrs: string[]) =>
  Reservations.of([
    {
      apiVersion: "projectcalico.org/v3",
      kind: "IPReservation",
      metadata: { name: "r" },
      spec: { reservedCIDRs: cidrs },
    },
  ]);

test("CI-061 single addresses, ranges and their union are reserved; invalid entries are ignored", () => {
  const r = of("10.0.0.1", "10.0.0.16/28", "fd00::/120", "nonsense", "10.0.0.32/27");
  expect(r.has(parseAddress("10.0.0.1"))).toBe(true);
  expect(r.has(parseAddress("10.0.0.2"))).toBe(false);
  expect(r.has(parseAddress("10.0.0.47"))).toBe(true);
  expect(r.has(parseAddress("fd00::ff"))).toBe(true);
  expect(r.has(parseAddress("fd00::100"))).toBe(false);
  // Adjacent ranges are merged: together they cover the /26.
  expect(of("10.0.0.0/27", "10.0.0.32/27").covers(parseCidr("10.0.0.0/26"))).toBe(true);
  expect(of("10.0.0.0/27").covers(parseCidr("10.0.0.0/26"))).toBe(false);
});

test("CI-070 overlaps are counted once", () => {
  const r = of("10.0.0.0/30", "10.0.0.2/31", "10.0.0.0/29");
  expect(r.countIn(parseCidr("10.0.0.0/24"))).toBe(8n);
  expect(r.countIn(parseCidr("10.0.0.4/30"))).toBe(4n);
  expect(r.countIn(parseCidr("10.0.1.0/24"))).toBe(0n);
});

test("an address is reserved if one of the prefixes contains it", () =>
  fc.assert(
    fc.property(
      fc.array(fc.record({ at: fc.nat(255), length: fc.integer({ min: 24, max: 32 }) }), { maxLength: 8 }),
      fc.nat(255),
      (prefixes, probe) => {
        const address = (n: number) => addressFromBigInt(0x0a000000n + BigInt(n), 4);
        const cidrs = prefixes.map(({ at, length }) => maskCidr(address(at), length));
        const single = (n: number) => cidrs.some((cidr) => new Reservations([cidr]).has(address(n)));
        expect(new Reservations(cidrs).has(address(probe))).toBe(single(probe));
        const count = Array.from({ length: 256 }, (_, n) => n).filter(single).length;
        expect(new Reservations(cidrs).countIn(parseCidr("10.0.0.0/24"))).toBe(BigInt(count));
      },
    ),
    { numRuns: 50 },
  ));
