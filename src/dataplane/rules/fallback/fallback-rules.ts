// Computes the fallbacks of a rule: the rules that may be programmed instead if the kernel rejects it.
//
// A fallback never accepts a packet that the rule would have dropped. Fallbacks are ordered: the first is closest to the
// rule, later ones need fewer kernel features but may drop more packets.
//
// - A rule that only accepts, rewrites or logs is omitted.
// - Any other rule is replaced by a drop, first with the same matches (in case the kernel rejected the action), then with
//   fewer and fewer matches.
// - In a chain that the host's own packets traverse, a drop without conditions is not allowed: a missing kernel feature
//   must not lock the operator out. There, a jump to policy is replaced by a jump to a chain that keeps the failsafe ports
//   open (fallback-chains.ts). Without such a chain the rule has no fallback: it is programmed, or nothing is.
import {
  type Action,
  type Chain,
  chainRules,
  drop,
  type TableName,
  type Match,
  namesSet,
  type Rule,
  type RuleChain,
  type SetId,
} from "../rule.ts";

/** The properties of a rule's chain that its fallbacks depend on. */
export interface RuleContext {
  readonly tableName: TableName;
  readonly isHostWide: boolean;
}

export const ruleContext = (tableName: TableName, chain: Chain): RuleContext => ({
  tableName,
  isHostWide: chain.isHostWide === true,
});

/**
 * Replaces rules of a chain.
 * @param fallbackAt returns the replacement of a rule, by its index in `chainRules`; undefined to keep the rule
 */
export function withFallbacks<C extends Chain>(
  chain: C,
  fallbackAt: (index: number, rule: Rule) => Rule | undefined,
): C {
  const fallbacks = chainRules(chain).map((rule, i) => fallbackAt(i, rule));
  if (fallbacks.every((fallback) => fallback === undefined)) return chain;
  let index = 0;
  const replace = (rules: readonly Rule[]) => rules.map((rule) => fallbacks[index++] ?? rule);
  if (chain.kind === "rules") return { ...chain, rules: replace((chain as RuleChain).rules) };
  const before = replace(chain.before ?? []);
  const otherwise = replace(chain.otherwise);
  return { ...chain, before, otherwise, after: replace(chain.after ?? []) };
}

/** Returns the fallbacks of a rule, the closest first; empty if the rule must not be replaced. */
export function fallbacksFor(rule: Rule, context: RuleContext): readonly Rule[] {
  const withoutLog = decisionWithoutLog(rule);
  if (isOmittable(rule, context)) {
    const sameDrop = rule.action?.kind === "reject" ? [dropInstead(rule, rule.match ?? [])] : [];
    return [...withoutLog, ...sameDrop, emptyRule(rule)];
  }
  const toFallbackChain = jumpsToFallbackChain(rule);
  if (isJumpToHostPolicy(rule, context)) return toFallbackChain;
  return [...withoutLog, ...toFallbackChain, ...dropsInstead(rule, context)];
}

/** True if no additional packet is accepted without the rule. */
export function isOmittable({ match, action, ifRejected }: Rule, { tableName, isHostWide }: RuleContext): boolean {
  if (ifRejected === "omit" || tableName === "nat" || action === undefined) return true; // nat accepts and drops nothing
  if (match?.some(({ kind }) => kind === "connectionsAbove") === true) return true; // a limit, not policy
  if (action.kind === "decide") return action.decision === "allow";
  // A return from a host-wide chain only skips the checks that follow in that chain.
  return OMITTABLE_ACTIONS.has(action.kind) || (isHostWide && action.kind === "return");
}

const OMITTABLE_ACTIONS: ReadonlySet<Action["kind"]> = new Set([
  ...(["accept", "log", "nflog", "dscp", "offload", "notrack", "dropOverRate"] as const),
  ...(["masquerade", "snat", "dnat"] as const),
]);

/** Omitting such a jump would bypass policy; a drop instead would precede the failsafe ports. */
const isJumpToHostPolicy = ({ action, ifRejected }: Rule, { isHostWide }: RuleContext): boolean =>
  isHostWide && ifRejected !== "drop" && (action?.kind === "jump" || action?.kind === "goto");

function decisionWithoutLog(rule: Rule): Rule[] {
  const { action } = rule;
  if (action?.kind !== "decide" || action.nflog === undefined) return [];
  const comments = [...(rule.comments ?? []), "Not recorded: refused by the kernel"];
  return [{ ...rule, action: { kind: "decide", decision: action.decision }, comments }];
}

/** The kinds of matches that are kept, from many to few. Every kernel has the last ones. */
const KEPT_MATCHES: readonly ReadonlySet<Match["kind"]>[] = [
  new Set(["interface", "family", "mark", "protocol", "nets", "address", "ports", "udpPort"] as const),
  new Set(["interface", "family", "mark", "protocol", "nets", "address"] as const),
  new Set(["interface", "family", "mark"] as const),
];

/** Jumps with all matches of the rule, then with fewer. */
function jumpsToFallbackChain(rule: Rule): Rule[] {
  const { ifRejected, action } = rule;
  if (typeof ifRejected !== "object") return [];
  const all = rule.match ?? [];
  const kept = all.filter(({ kind }) => KEPT_MATCHES[0]?.has(kind));
  const matches = action?.kind === "drop" ? [kept] : kept.length === all.length ? [all] : [all, kept];
  return matches.map((match) => ({
    ...(match.length === 0 ? {} : { match }),
    action: { kind: action?.kind === "goto" ? "goto" : "jump", chain: ifRejected.chain },
    comments: ["Led elsewhere: the rule here was refused by the kernel"],
    ifRejected,
  }));
}

/** Drops with all matches of the rule, then with fewer. */
function dropsInstead(rule: Rule, { isHostWide }: RuleContext): Rule[] {
  const { action } = rule;
  // Packets that already have the mark do not need the rule.
  const hasOtherMark: Match[] = action?.kind === "setMark" ? [{ ...action, kind: "mark", negated: true }] : [];
  const all = [...(rule.match ?? []), ...hasOtherMark];
  const drops: Rule[] = action?.kind === "drop" ? [] : [dropInstead(rule, all)];
  let size = all.length;
  // In a host-wide chain, a drop without the rule's ports and prefixes would also drop packets to failsafe ports.
  for (const kinds of isHostWide ? KEPT_MATCHES.slice(0, 1) : KEPT_MATCHES) {
    const match = all.filter((m) => kinds.has(m.kind) && !(m.kind === "ports" && (m.sets?.length ?? 0) > 0));
    if (match.length === size) continue;
    size = match.length;
    if (isHostWide && match.length === 0) break;
    drops.push(dropInstead(rule, match));
  }
  return drops;
}

const dropInstead = (rule: Rule, match: readonly Match[]): Rule => ({
  match,
  action: drop,
  comments: ["Closed: the rule here was refused by the kernel"],
  ...(rule.annotations === undefined ? {} : { annotations: rule.annotations }),
});
const emptyRule = ({ annotations }: Rule): Rule => ({
  comments: ["Left out: refused by the kernel"],
  ...(annotations === undefined ? {} : { annotations }),
});

export const usesAnySet = (rule: Rule, sets: ReadonlySet<SetId>): boolean =>
  sets.size > 0 && rule.match?.some((m) => [...sets].some((set) => namesSet(m, set))) === true;

/** Describes the effect of a fallback to an operator. */
export function describeFallback(fallback: Rule): string {
  if (fallback.action === undefined) return "the rule is omitted";
  if (typeof fallback.ifRejected === "object") return fallback.ifRejected.effect;
  if (fallback.action.kind !== "drop") return "the rule decides as configured, but is not logged";
  const kinds = [...new Set((fallback.match ?? []).map(({ kind }) => MATCH_NAMES[kind] ?? kind))];
  if (kinds.length === 0) return "all packets that reach the rule are dropped";
  return `packets that reach the rule and match its ${kinds.join(", ")} are dropped`;
}
const MATCH_NAMES: Readonly<Partial<Record<Match["kind"], string>>> = {
  nets: "prefixes",
  ipSet: "IP set",
  ipPortSet: "IP set",
  udpPort: "ports",
  mark: "marks",
};

/** Returns the settings that require the rule's optional kernel features; undefined if it has none. */
export function requiringSettings({ match = [], action }: Rule): string | undefined {
  const settings = [
    ...match.map((m) => MATCH_SETTINGS[m.kind]),
    action === undefined ? undefined : ACTION_SETTINGS[logsFlows(action) ? "nflog" : action.kind],
  ];
  return settings.filter((setting) => setting !== undefined).join("; ") || undefined;
}

const logsFlows = (action: Action): boolean => action.kind === "decide" && action.nflog !== undefined;

const MATCH_SETTINGS: Readonly<Partial<Record<Match["kind"], string>>> = {
  connectionsAbove: "ingressMaxConnections, egressMaxConnections of QoS annotations (nft_connlimit, xt_connlimit)",
  limit: "LogActionRateLimit (nft_limit, xt_limit)",
  reversePathFails: "reverse-path filter of workloads (nft_fib, xt_rpfilter)",
  localAddress: "rules that match addresses of the host (nft_fib, xt_addrtype)",
};
const ACTION_SETTINGS: Readonly<Partial<Record<Action["kind"], string>>> = {
  log: "action Log of a policy (nft_log, xt_LOG)",
  nflog: "flow logs (nft_log, xt_NFLOG)",
  reject: "NftablesFilterDenyAction, IptablesFilterDenyAction Reject (nft_reject, REJECT)",
  masquerade: "natOutgoing of an IPPool (nft_masq, MASQUERADE)",
  snat: "NATOutgoingAddress (nft_nat, SNAT)",
  dnat: "floating IPs (nft_nat, DNAT)",
  notrack: "doNotTrack of a policy (nft_ct, NOTRACK)",
  dscp: "DSCP of QoS annotations, IstioDSCPMark (nft_payload, xt_DSCP)",
  offload: "NFTablesFlowTableOffload (nft_flow_offload)",
  dropOverRate: "ingressPacketRate, egressPacketRate of QoS annotations (nft_limit, xt_limit)",
};
