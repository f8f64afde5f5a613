import { expect, test } from "bun:test";
import fc from "fast-check";
import * as ip from "./ip.ts";

const addresses = [
  { text: "10.0.0.1", want: "10.0.0.1" },
  { text: "FD00:0:0::1", want: "fd00::1" },
  { text: "::", want: "::" },
  { text: "1:0:0:2:0:0:0:3", want: "1:0:0:2::3" },
  { text: "2001:db8:0:1:1:1:1:1", want: "2001:db8:0:1:1:1:1:1" },
  { text: "::ffff:10.0.0.1", want: "10.0.0.1" },
  { text: "64:ff9b::10.0.0.1", want: "64:ff9b::a00:1" },
  { text: "1::", want: "1::" },
];
for (const { text, want } of addresses)
  test(`parseAddress: ${text} is ${want}`, () => expect<string>(ip.parseAddress(text)).toBe(want));

for (const text of [
  "",
  "10.0.0",
  "10.0.0.256",
  "010.0.0.1",
  "1.2.3.4.5",
  "1.2..4",
  "fd00",
  ":::",
  "1::2::3",
  "1:2:3:4:5:6:7:8:9",
  "fd00::%eth0",
  "12345::",
  "1:2:3:4:5:6:7::8:9",
  "1.2.3.4::",
])
  test(`parseAddress rejects ${JSON.stringify(text)}`, () => expect(ip.tryParseAddress(text)).toBeUndefined());

const cidrs = [
  { text: "10.0.0.5/26", want: "10.0.0.0/26" },
  { text: "fd00:0:0::5/122", want: "fd00::/122" },
  { text: "255.255.255.255/0", want: "0.0.0.0/0" },
  { text: "10.1.2.3", want: "10.1.2.3/32" },
  { text: "::1/128", want: "::1/128" },
];
for (const { text, want } of cidrs)
  test(`parseCidr: ${text} is ${want}`, () => expect<string>(ip.parseCidr(text)).toBe(want));
for (const text of ["10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "fd00::/129", "10.0.0.0/08", "10.0.0.0/2 "])
  test(`parseCidr rejects ${JSON.stringify(text)}`, () => expect(ip.tryParseCidr(text)).toBeUndefined());

const arbAddress = fc.oneof(
  fc.bigInt(0n, (1n << 32n) - 1n).map((value) => ip.addressFromBigInt(value, 4)),
  fc.bigInt(0n, (1n << 128n) - 1n).map((value) => ip.addressFromBigInt(value, 6)),
  fc.ipV6().map(ip.parseAddress),
);

test("printing inverts parsing, by text, number and bytes", () =>
  fc.assert(
    fc.property(arbAddress, (address) => {
      expect(ip.parseAddress(address)).toBe(address);
      expect(ip.addressFromBigInt(ip.addressToBigInt(address), ip.ipVersion(address))).toBe(address);
      expect(ip.addressFromBytes(ip.addressBytes(address))).toBe(address);
    }),
  ));

test("a prefix contains the address from which it was made, and every longer prefix of that address", () =>
  fc.assert(
    fc.property(arbAddress, fc.nat(128), fc.nat(128), (address, a, b) => {
      const bits = ip.addressBits(ip.ipVersion(address));
      const [short, long] = [Math.min(a, b, bits), Math.min(Math.max(a, b), bits)];
      const outer = ip.maskCidr(address, short);
      expect(ip.cidrContains(outer, address)).toBe(true);
      expect(ip.cidrContains(outer, ip.maskCidr(address, long))).toBe(true);
      expect(ip.cidrContains(ip.maskCidr(address, long), outer)).toBe(short === long);
    }),
  ));
