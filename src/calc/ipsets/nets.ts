// Converts the networks of endpoints and network sets to members of IP sets.
import { type Cidr, cidrAddress, hostCidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";

/** Reduces an endpoint's networks to single addresses. Lists that contain only single addresses are not copied. */
export function endpointAddresses(v4: readonly Cidr[], v6: readonly Cidr[]): readonly Cidr[] {
  const single4 = v4.every((cidr) => cidr.endsWith("/32")) ? v4 : v4.map((cidr) => hostCidr(cidrAddress(cidr)));
  const single6 = v6.every((cidr) => cidr.endsWith("/128")) ? v6 : v6.map((cidr) => hostCidr(cidrAddress(cidr)));
  return single6.length === 0 ? single4 : single4.length === 0 ? single6 : [...single4, ...single6];
}

/** Replaces a `/0` prefix by its two halves, because an ipset of type `hash:net` cannot contain `/0`. */
export function splitZeroLengthPrefixes(cidrs: readonly Cidr[]): readonly Cidr[] {
  return cidrs.some(isZeroLength)
    ? cidrs.flatMap((cidr) => (isZeroLength(cidr) ? HALVES[ipVersion(cidr)] : [cidr]))
    : cidrs;
}

const isZeroLength = (cidr: Cidr): boolean => cidr.endsWith("/0");
const HALVES: Readonly<Record<IpVersion, readonly Cidr[]>> = {
  4: ["0.0.0.0/1", "128.0.0.0/1"] as Cidr[],
  6: ["::/1", "8000::/1"] as Cidr[],
};
