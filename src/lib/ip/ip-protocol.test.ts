import { expect, test } from "bun:test";
import { ipProtocolName, ipProtocolNumber } from "./ip-protocol.ts";

for (const { given, want } of [
  { given: "tcp", want: 6 },
  { given: "ICMPv6", want: 58 },
  { given: "ipv6-icmp", want: 58 },
  { given: "132", want: 132 },
  { given: 17, want: 17 },
  { given: "256", want: undefined },
  { given: 1.5, want: undefined },
  { given: "", want: undefined },
  { given: "carrier pigeon", want: undefined },
])
  test(`the number of ${JSON.stringify(given)} is ${want}`, () => expect(ipProtocolNumber(given)).toBe(want));

test("a number is converted to the name that policies use, if it has one", () =>
  expect([6, 58, 47].map(ipProtocolName)).toEqual(["tcp", "icmpv6", undefined]));
