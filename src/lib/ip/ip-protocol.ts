// Converts between IP protocol numbers and the names that policies and kernel tools use.
// https://www.iana.org/assignments/protocol-numbers

const NUMBERS: ReadonlyMap<string, number> = new Map([
  ["icmp", 1],
  ["tcp", 6],
  ["udp", 17],
  ["ipv6-icmp", 58],
  ["icmpv6", 58],
  ["sctp", 132],
  ["udplite", 136],
]);
const NAMES: ReadonlyMap<number, string> = new Map([...NUMBERS].map(([name, number]) => [number, name]));

/** @param protocol a name in any letter case, or a number; undefined is returned for anything else */
export function ipProtocolNumber(protocol: string | number): number | undefined {
  if (typeof protocol === "number")
    return Number.isInteger(protocol) && protocol >= 0 && protocol <= 255 ? protocol : undefined;
  const named = NUMBERS.get(protocol) ?? NUMBERS.get(protocol.toLowerCase());
  return named ?? (/^\d{1,3}$/.test(protocol) ? ipProtocolNumber(Number(protocol)) : undefined);
}

/** In lower case; undefined if policies have no name for it. */
export const ipProtocolName = (number: number): string | undefined => NAMES.get(number);
