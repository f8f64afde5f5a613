// Converts members of IP sets for both renderers: canonical text, one family, and no prefix of length 0, which neither ipset
// nor nftables intervals support. It is replaced by its two halves.
import { type Cidr, type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { MemberType } from "./rule-table.ts";

export function familyMembers(type: MemberType, version: IpVersion, members: Iterable<string>): Set<string> {
  const kept = new Set<string>();
  for (const member of members) for (const one of familyMember(type, version, member)) kept.add(one);
  return kept;
}

/** Returns the member, or nothing if it belongs to the other family. */
export function familyMember(type: MemberType, version: IpVersion, member: string): readonly string[] {
  const comma = member.indexOf(",");
  const address = (comma < 0 ? member : member.slice(0, comma)) as Cidr | IpAddress;
  if (ipVersion(address) !== version) return NONE;
  if (type === "net" && address.endsWith("/0"))
    return version === 4 ? ["0.0.0.0/1", "128.0.0.0/1"] : ["::/1", "8000::/1"];
  return [member];
}

const NONE: readonly string[] = [];
