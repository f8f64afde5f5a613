// Builds the chains of policies and profiles, with one rule of the rule tree per rule of the policy.
import type { PolicyId, ProtoPolicy, ProtoProfile, ProtoRule } from "../../calc/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { RulesConfig } from "./config.ts";
import { type ChainNames, type Direction, policyPath, policyTitle, shortKind } from "./names.ts";
import { nflogGroup, nflogPrefix } from "./nflog.ts";
import { policyRuleMatch } from "./policy-rule-match.ts";
import { splitPorts } from "./port-groups.ts";
import { type Action, chain, clearMark, type Match, type Rule, type RuleChain } from "./rule.ts";

/** Every kernel rule of a policy rule repeats its annotations as comments. With iptables these can be hundreds of rules. */
const MAX_ANNOTATIONS = 16;
/** The maximum length of an iptables comment. */
const MAX_ANNOTATION_LENGTH = 256;

/**
 * The kernel rejects rules with too many matches: an nftables rule has at most 128 expressions, and iptables-restore accepts
 * 255 words per rule. Each negated named port, and each group of 15 negated port numbers, is a match of its own, with up to
 * five expressions or six words.
 */
const MAX_NEGATED_PORT_MATCHES = 20;

/** The parameters of a policy chain besides the policy. */
export interface PolicyChainContext {
  readonly config: RulesConfig;
  readonly names: ChainNames;
  readonly version: IpVersion;
  readonly direction: Direction;
}

/** The policy or profile of the rules, for comments and logs. */
interface RuleOwner {
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

export function policyChain(place: PolicyChainContext, id: PolicyId, policy: ProtoPolicy): RuleChain {
  const { names, direction } = place;
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
  const built = ownedChain(place, names.policy(direction, id), rules, owner);
  const isForced = policy.performanceHints.includes("AssumeNeededOnEveryNode");
  return isForced ? { ...built, isForced } : built;
}

export function profileChain(place: PolicyChainContext, name: string, profile: ProtoProfile): RuleChain {
  const { config, names, direction } = place;
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
  const built = ownedChain(place, names.profile(direction, name), rules, owner);
  const passes = built.rules.some(({ action }) => action?.kind === "decide" && action.decision === "pass");
  if (!passes) return built;
  // The last tier may have set the pass mark. With iptables, a decision is two rules, and the second one matches the mark:
  // it would return from the profile although the first one did not match.
  return { ...built, rules: [{ action: clearMark(config.marks.pass) }, ...built.rules] };
}

function ownedChain(
  place: PolicyChainContext,
  name: string,
  protoRules: readonly ProtoRule[],
  owner: RuleOwner,
): RuleChain {
  const rules: Rule[] = [];
  for (const [index, protoRule] of protoRules.entries()) {
    const rule = policyRule(place, protoRule, index, owner);
    if (rule !== undefined) rules.push(rule);
  }
  // The comment of the first rule names the policy. An empty chain gets a rule without effect for this comment.
  const title = `${owner.title} ${place.direction}`;
  const [first, ...rest] = rules;
  if (first === undefined) return chain(name, [{ comments: [title] }]);
  return chain(name, [{ ...first, comments: [title] }, ...rest]);
}

/** Returns the rule for one family; undefined if it cannot match packets of that family. */
function policyRule(place: PolicyChainContext, rule: ProtoRule, index: number, owner: RuleOwner): Rule | undefined {
  const { config, version, direction } = place;
  const wanted = policyRuleMatch(version, rule);
  if (wanted === undefined) return undefined;
  const isTooLong = negatedPortMatches(wanted) > MAX_NEGATED_PORT_MATCHES;
  // The kernel would reject this rule. It is not tried, because the search for rejected rules would delay the changes of
  // all other policies.
  if (isTooLong && (rule.action === "allow" || rule.action === "log")) return undefined;
  const match = isTooLong ? wanted.filter((each) => !isNegatedPorts(each)) : wanted;
  const entries = Object.entries(rule.annotations ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const annotations = entries
    .slice(0, MAX_ANNOTATIONS)
    .map(([key, value]) => `${key}=${value}`.slice(0, MAX_ANNOTATION_LENGTH));
  if (rule.action === "log") {
    const limit: readonly Match[] =
      config.logRate === undefined ? [] : [{ kind: "limit", rate: config.logRate, burst: config.logBurst }];
    return {
      match: [...match, ...limit],
      action: { kind: "log", prefix: logPrefix(config.logPrefix, owner) },
      annotations,
    };
  }
  const decision = isTooLong ? "deny" : rule.action === "next-tier" ? "pass" : rule.action;
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

type PortsMatch = Extract<Match, { readonly kind: "ports" }>;
const isNegatedPorts = (match: Match): match is PortsMatch => match.kind === "ports" && match.negated === true;

const negatedPortMatches = (match: readonly Match[]): number =>
  match
    .filter(isNegatedPorts)
    .reduce((count, { ranges, sets = [] }) => count + splitPorts(ranges).length + sets.length, 0);

/** Replaces `%t` (tier), `%k` (kind), `%n` (name) and `%p` (namespace/name), and appends a colon. */
function logPrefix(template: string, owner: RuleOwner): string {
  const text = template.replace(/%([tknp])/g, (_, letter: string) => {
    if (letter === "t") return owner.isProfile ? "profile" : owner.tier;
    if (letter === "k") return owner.kind;
    return letter === "n" ? owner.name : owner.namespacedName;
  });
  // The prefix is quoted in rules and starts a line of the kernel's log: quotes and line breaks are replaced.
  return `${text.replace(/[^\x20-\x7e]|["\\]/g, "_")}: `;
}
