// Networks of endpoints and network sets in the form in which they are members of IP sets.
import { type Cidr, cidrAddress, hostCidr, type IpVersion, ipVersion } from "../../lib/ip.ts";

/** An endpoint's networks as single addresses; the lists are kept as they are where they hold nothing else. */
export function endpointAddresses(v4: readonly Cidr[], v6: readonly Cidr[]): readonly Cidr[] {
  const single4 = v4.every((cidr) => cidr.endsWith("/32")) ? v4 : v4.map((cidr) => hostCidr(cidrAddress(cidr)));
  const single6 = v6.every((cidr) => cidr.endsWith("/128")) ? v6 : v6.map((cidr) => hostCidr(cidrAddress(cidr)));
  return single6.length === 0 ? single4 : single4.length === 0 ? single6 : [...single4, ...single6];
}

/** The prefixes, with two halves in place of a whole address space: a set cannot contain that as one prefix. */
export function splitWholeSpaces(cidrs: readonly Cidr[]): readonly Cidr[] {
  return cidrs.some(isWholeSpace)
    ? cidrs.flatMap((cidr) => (isWholeSpace(cidr) ? HALVES[ipVersion(cidr)] : [cidr]))
    : cidrs;
}

const isWholeSpace = (cidr: Cidr): boolean => cidr.endsWith("/0");
const HALVES: Readonly<Record<IpVersion, readonly Cidr[]>> = {
  4: ["0.0.0.0/1", "128.0.0.0/1"] as Cidr[],
  6: ["::/1", "8000::/1"] as Cidr[],
};
