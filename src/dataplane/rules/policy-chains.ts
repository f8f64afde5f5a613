// Policies and profiles as chains: one rule of the tree per rule of the policy.
import type { PolicyId, ProtoPolicy, ProtoProfile, ProtoRule } from "../../calc/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import type { RulesConfig } from "./config.ts";
import { type ChainNames, type Direction, policyPath, policyTitle, shortKind } from "./names.ts";
import { nflogGroup, nflogPrefix } from "./nflog.ts";
import { policyRuleMatch } from "./policy-rule-match.ts";
import { type Action, chain, clearMark, type Match, type Rule, type RuleChain } from "./rule.ts";

/** Annotations are comments of all kernel rules that one rule becomes, which in iptables may be hundreds. */
const MOST_ANNOTATIONS = 16;
/** As long as a comment of iptables. */
const LONGEST_ANNOTATION = 256;

/** Where a policy's chain will stand. */
export interface ChainPlace {
  readonly config: RulesConfig;
  readonly names: ChainNames;
  readonly version: IpVersion;
  readonly direction: Direction;
}

/** Who the rules belong to, for comments and logs. */
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

export function policyChain(place: ChainPlace, id: PolicyId, policy: ProtoPolicy): RuleChain {
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

export function profileChain(place: ChainPlace, name: string, profile: ProtoProfile): RuleChain {
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
  // The last tier may have passed the packet on: that mark is not this profile's word. Where a decision takes two rules
  // (iptables), the second would leave the profile for a rule that never matched.
  return { ...built, rules: [{ action: clearMark(config.marks.pass) }, ...built.rules] };
}

function ownedChain(place: ChainPlace, name: string, protoRules: readonly ProtoRule[], owner: RuleOwner): RuleChain {
  const rules: Rule[] = [];
  for (const [index, protoRule] of protoRules.entries()) {
    const rule = policyRule(place, protoRule, index, owner);
    if (rule !== undefined) rules.push(rule);
  }
  // The chain says whose it is on its first rule; an empty one needs a rule to say it.
  const title = `${owner.title} ${place.direction}`;
  const [first, ...rest] = rules;
  if (first === undefined) return chain(name, [{ comments: [title] }]);
  return chain(name, [{ ...first, comments: [title] }, ...rest]);
}

/** The rule for one family; nothing when it cannot match a packet of that family. */
function policyRule(place: ChainPlace, rule: ProtoRule, index: number, owner: RuleOwner): Rule | undefined {
  const { config, version, direction } = place;
  const match = policyRuleMatch(version, rule);
  if (match === undefined) return undefined;
  const notes = Object.entries(rule.annotations ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const annotations = notes
    .slice(0, MOST_ANNOTATIONS)
    .map(([key, value]) => `${key}=${value}`.slice(0, LONGEST_ANNOTATION));
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
