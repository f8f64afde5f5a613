// What one rule of a policy asks of a packet of one family. The order of the matches is fixed, so that one policy always
// gives one text.
import type { ProtoProtocol, ProtoRule } from "../../calc/index.ts";
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip.ts";
import { icmpProtocol, type Match, type Protocol, protocolNumber } from "./rule.ts";

/** All the rule asks for; nothing when a packet of this family cannot match. */
export function policyRuleMatch(version: IpVersion, rule: ProtoRule): readonly Match[] | undefined {
  if (rule.ipVersion !== undefined && rule.ipVersion !== version) return undefined;
  const srcNet = ofFamily(version, rule.srcNet);
  const dstNet = ofFamily(version, rule.dstNet);
  const notSrcNet = ofFamily(version, rule.notSrcNet);
  const notDstNet = ofFamily(version, rule.notDstNet);
  if (srcNet === undefined || dstNet === undefined || notSrcNet === undefined || notDstNet === undefined)
    return undefined;
  if ([...notSrcNet, ...notDstNet].some((net) => net.endsWith("/0"))) return undefined; // "not anything"
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
  /** It is the family's own ICMP. */
  readonly isIcmp: boolean;
}

/** Nothing when no packet of this family can have what is asked for. */
function protocolsOf(version: IpVersion, rule: ProtoRule): Protocols | undefined {
  // An ICMP match needs its family's protocol; given by a number it may be the other family's, which the kernel would
  // refuse and no packet here could have.
  const hasIcmp = rule.icmp !== undefined || rule.notIcmp !== undefined;
  const protocol = protocolOf(rule.protocol) ?? (hasIcmp ? icmpProtocol(version) : undefined);
  const isIcmp = protocol !== undefined && protocolNumber(protocol) === (version === 4 ? 1 : 58);
  if (rule.icmp !== undefined && !isIcmp) return undefined;
  const notProtocol = protocolOf(rule.notProtocol);
  if (protocol === undefined || notProtocol === undefined) return { protocol, notProtocol, isIcmp };
  // A packet has one protocol: "tcp and not udp" is tcp, "tcp and not tcp" is nothing.
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

/** The prefixes of the family; nothing when there were some but none of this family. */
function ofFamily(version: IpVersion, nets: readonly Cidr[]): readonly Cidr[] | undefined {
  if (nets.length === 0) return nets;
  const kept = nets.filter((net) => ipVersion(net) === version);
  return kept.length === 0 ? undefined : kept;
}

function protocolOf(protocol: ProtoProtocol | undefined): Protocol | undefined {
  if (protocol === undefined) return undefined;
  return "number" in protocol ? protocol.number : protocol.name.toLowerCase();
}
