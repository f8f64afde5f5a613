// Policies and profiles as chains: one rule of the tree per rule of the policy. Order of the matches is fixed, so that
// one policy always gives one text.
import type { PolicyId, ProtoPolicy, ProtoProfile, ProtoProtocol, ProtoRule } from "../../calc/index.ts";
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip.ts";
import type { RulesConfig } from "./config.ts";
import { type ChainNames, type Direction, policyPath, policyTitle, shortKind } from "./names.ts";
import { nflogGroup, nflogPrefix } from "./nflog.ts";
import {
  type Action,
  chain,
  clearMark,
  icmpProtocol,
  type Match,
  type Protocol,
  protocolNumber,
  type Rule,
  type RuleChain,
} from "./rule.ts";

/** Who the rules belong to, for comments and logs. */
export interface RuleOwner {
  readonly title: string;
  /** `gnp/web`, or a profile's name. */
  readonly path: string;
  readonly isProfile: boolean;
  readonly tier: string;
  readonly kind: string;
  readonly name: string;
  readonly namespacedName: string;
  readonly untracked: boolean;
}

export function policyChain(
  config: RulesConfig,
  names: ChainNames,
  version: IpVersion,
  direction: Direction,
  id: PolicyId,
  policy: ProtoPolicy,
): RuleChain {
  const owner: RuleOwner = {
    title: policyTitle(id),
    path: policyPath(id),
    isProfile: false,
    tier: policy.tier === "" ? "default" : policy.tier,
    kind: shortKind(id),
    name: id.name,
    namespacedName: id.namespace === "" ? id.name : `${id.namespace}/${id.name}`,
    untracked: policy.untracked,
  };
  const rules = direction === "ingress" ? policy.inboundRules : policy.outboundRules;
  const built = ownedChain(config, version, direction, names.policy(direction, id), rules, owner);
  const isForced = policy.performanceHints.includes("AssumeNeededOnEveryNode");
  return isForced ? { ...built, isForced } : built;
}

export function profileChain(
  config: RulesConfig,
  names: ChainNames,
  version: IpVersion,
  direction: Direction,
  name: string,
  profile: ProtoProfile,
): RuleChain {
  const owner: RuleOwner = {
    title: `Profile ${name}`,
    path: name,
    isProfile: true,
    tier: "",
    kind: "profile",
    name,
    namespacedName: name,
    untracked: false,
  };
  const rules = direction === "ingress" ? profile.inboundRules : profile.outboundRules;
  const built = ownedChain(config, version, direction, names.profile(direction, name), rules, owner);
  const passes = built.rules.some(({ action }) => action?.kind === "decide" && action.decision === "pass");
  if (!passes) return built;
  // The last tier may have passed the packet on: that mark is not this profile's word. Where a decision takes two rules
  // (iptables), the second would leave the profile for a rule that never matched.
  return { ...built, rules: [{ action: clearMark(config.marks.pass) }, ...built.rules] };
}

function ownedChain(
  config: RulesConfig,
  version: IpVersion,
  direction: Direction,
  name: string,
  protoRules: readonly ProtoRule[],
  owner: RuleOwner,
): RuleChain {
  const rules: Rule[] = [];
  for (const [index, protoRule] of protoRules.entries()) {
    const rule = policyRule(config, version, direction, protoRule, index, owner);
    if (rule !== undefined) rules.push(rule);
  }
  // The chain says whose it is on its first rule; an empty one needs a rule to say it.
  const title = `${owner.title} ${direction}`;
  const [first, ...rest] = rules;
  if (first === undefined) return chain(name, [{ comments: [title] }]);
  return chain(name, [{ ...first, comments: [title] }, ...rest]);
}

/** The rule for one family; nothing when it cannot match a packet of that family. */
function policyRule(
  config: RulesConfig,
  version: IpVersion,
  direction: Direction,
  rule: ProtoRule,
  index: number,
  owner: RuleOwner,
): Rule | undefined {
  const match = ruleMatch(version, rule);
  if (match === undefined) return undefined;
  const notes = Object.entries(rule.annotations ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const annotations = notes.map(([key, value]) => `${key}=${value}`);
  if (rule.action === "log") {
    const limit: readonly Match[] =
      config.logRate === undefined ? [] : [{ kind: "limit", rate: config.logRate, burst: config.logBurst }];
    return {
      match: [...match, ...limit],
      action: { kind: "log", prefix: logPrefix(config.logPrefix, owner) },
      annotations,
    };
  }
  const decision = rule.action === "next-tier" ? "pass" : rule.action;
  const action: Action =
    config.flowLogs && !owner.untracked
      ? {
          kind: "decide",
          decision,
          nflog: { group: nflogGroup(direction), prefix: nflogPrefix({ decision, direction, index, owner }) },
        }
      : { kind: "decide", decision };
  return { match, action, annotations };
}

/** `%t` tier, `%k` kind, `%n` name, `%p` namespace/name; then a colon. */
function logPrefix(template: string, owner: RuleOwner): string {
  const text = template.replace(/%([tknp])/g, (_, letter: string) => {
    if (letter === "t") return owner.isProfile ? "profile" : owner.tier;
    if (letter === "k") return owner.kind;
    return letter === "n" ? owner.name : owner.namespacedName;
  });
  // It stands between quotes in rules and at the start of a line in the kernel's log: it must end neither.
  return `${text.replace(/[^\x20-\x7e]|["\\]/g, "_")}: `;
}

/** All the rule asks for; nothing when a packet of this family cannot match. */
function ruleMatch(version: IpVersion, rule: ProtoRule): readonly Match[] | undefined {
  if (rule.ipVersion !== undefined && rule.ipVersion !== version) return undefined;
  const srcNet = ofFamily(version, rule.srcNet);
  const dstNet = ofFamily(version, rule.dstNet);
  const notSrcNet = ofFamily(version, rule.notSrcNet);
  const notDstNet = ofFamily(version, rule.notDstNet);
  if (srcNet === undefined || dstNet === undefined || notSrcNet === undefined || notDstNet === undefined)
    return undefined;
  if ([...notSrcNet, ...notDstNet].some((net) => net.endsWith("/0"))) return undefined; // "not anything"
  // An ICMP match needs its family's protocol; given by a number it may be the other family's, which the kernel would
  // refuse and no packet here could have.
  const icmpNumber = version === 4 ? 1 : 58;
  const hasIcmp = rule.icmp !== undefined || rule.notIcmp !== undefined;
  const protocol = protocolOf(rule.protocol) ?? (hasIcmp ? icmpProtocol(version) : undefined);
  const isIcmp = protocol !== undefined && protocolNumber(protocol) === icmpNumber;
  if (rule.icmp !== undefined && !isIcmp) return undefined;

  const match: Match[] = [];
  let notProtocol = protocolOf(rule.notProtocol);
  if (protocol !== undefined && notProtocol !== undefined) {
    // A packet has one protocol: "tcp and not udp" is tcp, "tcp and not tcp" is nothing.
    if (protocolNumber(protocol) === protocolNumber(notProtocol)) return undefined;
    notProtocol = undefined;
  }
  if (protocol !== undefined) match.push({ kind: "protocol", protocol });
  const side = (
    which: "source" | "destination",
    part: {
      nets: readonly Cidr[];
      sets: readonly string[];
      ipPortSets: readonly string[];
      ports: readonly { first: number; last: number }[];
      namedPorts: readonly string[];
    },
    negated: boolean,
  ) => {
    if (part.nets.length > 0) match.push({ kind: "nets", side: which, nets: part.nets, ...not(negated) });
    for (const set of part.sets) match.push({ kind: "ipSet", side: which, set, ...not(negated) });
    for (const set of part.ipPortSets) match.push({ kind: "ipPortSet", side: which, set, ...not(negated) });
    if (part.ports.length + part.namedPorts.length > 0)
      match.push({
        kind: "ports",
        side: which,
        protocol: protocol ?? "tcp",
        ranges: part.ports,
        sets: part.namedPorts,
        ...not(negated),
      });
  };
  side(
    "source",
    {
      nets: srcNet,
      sets: rule.srcIpSetIds,
      ipPortSets: [],
      ports: rule.srcPorts,
      namedPorts: rule.srcNamedPortIpSetIds,
    },
    false,
  );
  side(
    "destination",
    {
      nets: dstNet,
      sets: rule.dstIpSetIds,
      ipPortSets: rule.dstIpPortSetIds,
      ports: rule.dstPorts,
      namedPorts: rule.dstNamedPortIpSetIds,
    },
    false,
  );
  if (rule.icmp !== undefined) match.push({ kind: "icmp", ...rule.icmp });
  if (notProtocol !== undefined) match.push({ kind: "protocol", protocol: notProtocol, negated: true });
  side(
    "source",
    {
      nets: notSrcNet,
      sets: rule.notSrcIpSetIds,
      ipPortSets: [],
      ports: rule.notSrcPorts,
      namedPorts: rule.notSrcNamedPortIpSetIds,
    },
    true,
  );
  side(
    "destination",
    {
      nets: notDstNet,
      sets: rule.notDstIpSetIds,
      ipPortSets: [],
      ports: rule.notDstPorts,
      namedPorts: rule.notDstNamedPortIpSetIds,
    },
    true,
  );
  if (rule.notIcmp !== undefined && isIcmp) match.push({ kind: "icmp", ...rule.notIcmp, negated: true });
  return match;
}

const not = (negated: boolean): { negated: true } | Record<never, never> => (negated ? { negated: true } : {});

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
