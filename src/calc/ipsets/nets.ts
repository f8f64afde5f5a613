// Networks of endpoints and network sets in the form in which they are members of IP sets.
import { type Cidr, cidrAddress, cidrLength, hostCidr, ipVersion } from "../../lib/ip.ts";

/** An endpoint's networks as single addresses; the lists are kept as they are where they hold nothing else. */
export function endpointAddresses(v4: readonly Cidr[], v6: readonly Cidr[]): readonly Cidr[] {
  const single4 = v4.every((cidr) => cidr.endsWith("/32")) ? v4 : v4.map((cidr) => hostCidr(cidrAddress(cidr)));
  const single6 = v6.every((cidr) => cidr.endsWith("/128")) ? v6 : v6.map((cidr) => hostCidr(cidrAddress(cidr)));
  return single6.length === 0 ? single4 : single4.length === 0 ? single6 : [...single4, ...single6];
}

/** A set of prefixes cannot hold the whole space as one: two halves can. */
export function splitWholeSpace(cidr: Cidr): readonly Cidr[] {
  if (cidrLength(cidr) > 0) return [cidr];
  return (ipVersion(cidr) === 4 ? ["0.0.0.0/1", "128.0.0.0/1"] : ["::/1", "8000::/1"]) as Cidr[];
}
