// Converts the match criteria of a policy rule to matches of the rule tree, for one family. The order of the matches is fixed,
// so that the same policy always results in the same text.
import type { ProtocolMatch, ProtoRule } from "../../calc/index.ts";
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { icmpProtocol, type Match, type Protocol, protocolNumber } from "./rule.ts";

/** Returns undefined if no packet of this family can match. */
export function policyRuleMatch(version: IpVersion, rule: ProtoRule): readonly Match[] | undefined {
  if (rule.ipVersion !== undefined && rule.ipVersion !== version) return undefined;
  const srcNet = ofFamily(version, rule.srcNet);
  const dstNet = ofFamily(version, rule.dstNet);
  const notSrcNet = ofFamily(version, rule.notSrcNet);
  const notDstNet = ofFamily(version, rule.notDstNet);
  if (srcNet === undefined || dstNet === undefined || notSrcNet === undefined || notDstNet === undefined)
    return undefined;
  if ([...notSrcNet, ...notDstNet].some((net) => net.endsWith("/0"))) return undefined; // nothing is outside of /0
  const protocols = protocolsOf(version, rule);
  if (protocols === undefined) return undefined;
  const { protocol, notProtocol, isIcmp } = protocols;

  const match: Match[] = [];
  if (protocol !== undefined) match.push({ kind: "protocol", protocol });
  pushSide(match, "source", protocol, {
    nets: srcNet,
    sets: rule.srcIpSetIds,
    ports: rule.srcPorts,
    namedPorts: rule.srcNamedPortIpSetIds,
  });
  pushSide(match, "destination", protocol, {
    nets: dstNet,
    sets: rule.dstIpSetIds,
    ipPortSets: rule.dstIpPortSetIds,
    ports: rule.dstPorts,
    namedPorts: rule.dstNamedPortIpSetIds,
  });
  if (rule.icmp !== undefined) match.push({ kind: "icmp", ...rule.icmp });
  if (notProtocol !== undefined) match.push({ kind: "protocol", protocol: notProtocol, negated: true });
  pushSide(match, "source", protocol, {
    negated: true,
    nets: notSrcNet,
    sets: rule.notSrcIpSetIds,
    ports: rule.notSrcPorts,
    namedPorts: rule.notSrcNamedPortIpSetIds,
  });
  pushSide(match, "destination", protocol, {
    negated: true,
    nets: notDstNet,
    sets: rule.notDstIpSetIds,
    ports: rule.notDstPorts,
    namedPorts: rule.notDstNamedPortIpSetIds,
  });
  if (rule.notIcmp !== undefined && isIcmp) match.push({ kind: "icmp", ...rule.notIcmp, negated: true });
  return match;
}

interface Protocols {
  readonly protocol: Protocol | undefined;
  readonly notProtocol: Protocol | undefined;
  /** The protocol is the ICMP of this family. */
  readonly isIcmp: boolean;
}

/** Returns undefined if no packet of this family can match. */
function protocolsOf(version: IpVersion, rule: ProtoRule): Protocols | undefined {
  // An ICMP match needs the ICMP protocol of this family. A protocol number may be that of the other family: the kernel would
  // reject the rule, and no packet could match it.
  const hasIcmp = rule.icmp !== undefined || rule.notIcmp !== undefined;
  const protocol = protocolOf(rule.protocol) ?? (hasIcmp ? icmpProtocol(version) : undefined);
  const isIcmp = protocol !== undefined && protocolNumber(protocol) === (version === 4 ? 1 : 58);
  if (rule.icmp !== undefined && !isIcmp) return undefined;
  const notProtocol = protocolOf(rule.notProtocol);
  if (protocol === undefined || notProtocol === undefined) return { protocol, notProtocol, isIcmp };
  // A packet has one protocol: "tcp and not udp" means tcp, "tcp and not tcp" matches nothing.
  if (protocolNumber(protocol) === protocolNumber(notProtocol)) return undefined;
  return { protocol, notProtocol: undefined, isIcmp };
}

interface RuleSide {
  readonly negated?: true;
  readonly nets: readonly Cidr[];
  readonly sets: readonly string[];
  readonly ipPortSets?: readonly string[];
  readonly ports: readonly { readonly first: number; readonly last: number }[];
  readonly namedPorts: readonly string[];
}

function pushSide(
  match: Match[],
  side: "source" | "destination",
  protocol: Protocol | undefined,
  { nets, sets, ipPortSets = [], ports, namedPorts, ...negated }: RuleSide,
): void {
  if (nets.length > 0) match.push({ kind: "nets", side, nets, ...negated });
  for (const set of sets) match.push({ kind: "ipSet", side, set, ...negated });
  for (const set of ipPortSets) match.push({ kind: "ipPortSet", side, set, ...negated });
  if (ports.length + namedPorts.length > 0)
    match.push({ kind: "ports", side, protocol: protocol ?? "tcp", ranges: ports, sets: namedPorts, ...negated });
}

/** Returns the prefixes of the family; undefined if the list is not empty, but has none of this family. */
function ofFamily(version: IpVersion, nets: readonly Cidr[]): readonly Cidr[] | undefined {
  if (nets.length === 0) return nets;
  const kept = nets.filter((net) => ipVersion(net) === version);
  return kept.length === 0 ? undefined : kept;
}

function protocolOf(protocol: ProtocolMatch | undefined): Protocol | undefined {
  if (protocol === undefined) return undefined;
  return "number" in protocol ? protocol.number : protocol.name.toLowerCase();
}
