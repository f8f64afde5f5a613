// What is written instead of a rule that the kernel refuses. It never lets pass what the rule would have stopped, and
// stops no more than it must: the nearest the kernel takes. A rule that only lets pass, rewrites or records is left out;
// any other is replaced by one that drops, first with the same matches (then it was the action that was refused), then
// with ever fewer of them, since whether the rule meant a packet cannot be asked.
//
// In a chain that the host's own packets walk, what would drop all of them is no stand-in: nobody is locked out because
// a kernel lacks something. There a jump to policy gives way to one to a chain that leaves the failsafe ports open
// (detours.ts), and where it has no such detour it must be written, or nothing is.
import {
  type Action,
  type Chain,
  chainRules,
  drop,
  type Layer,
  type Match,
  namesSet,
  type Rule,
  type RuleChain,
  type SetId,
} from "./rule.ts";

/** Where a rule stands. */
export interface Place {
  readonly layer: Layer;
  readonly isHostWide: boolean;
}

export const placeIn = (layer: Layer, chain: Chain): Place => ({ layer, isHostWide: chain.isHostWide === true });

/** The chain with stand-ins for those of its rules, counted over all of `chainRules`, that have one. */
export function withStandIns<C extends Chain>(offered: C, standIn: (index: number, rule: Rule) => Rule | undefined): C {
  const found = chainRules(offered).map((rule, i) => standIn(i, rule));
  if (found.every((each) => each === undefined)) return offered;
  let index = 0;
  const replace = (rules: readonly Rule[]) => rules.map((rule) => found[index++] ?? rule);
  if (offered.kind === "rules") return { ...offered, rules: replace((offered as RuleChain).rules) };
  const before = replace(offered.before ?? []);
  const otherwise = replace(offered.otherwise);
  return { ...offered, before, otherwise, after: replace(offered.after ?? []) };
}

/** What may stand in for the rule, the nearest first; nothing where the rule itself must be written. */
export function standInsFor(rule: Rule, place: Place): readonly Rule[] {
  const nearest = unrecorded(rule);
  if (mayBeLeftOut(rule, place)) {
    const sameDrop = rule.action?.kind === "reject" ? [closed(rule, rule.match ?? [])] : [];
    return [...nearest, ...sameDrop, leftOut(rule)];
  }
  const elsewhere = detours(rule);
  if (isPolicyOfTheHost(rule, place)) return elsewhere;
  return [...nearest, ...elsewhere, ...closings(rule, place)];
}

/** Without it no more passes than with it. */
export function mayBeLeftOut({ match, action, ifRefused }: Rule, { layer, isHostWide }: Place): boolean {
  if (ifRefused === "leaveOut" || layer === "nat" || action === undefined) return true; // in nat nothing is decided
  if (match?.some(({ kind }) => kind === "connectionsAbove") === true) return true; // a limit is no policy
  if (action.kind === "decide") return action.decision === "allow";
  // Who returns from a chain of the whole host is spared what follows there.
  return LETS_PASS.has(action.kind) || (isHostWide && action.kind === "return");
}

const LETS_PASS: ReadonlySet<Action["kind"]> = new Set([
  ...(["accept", "log", "nflog", "dscp", "offload", "notrack", "dropOverRate"] as const),
  ...(["masquerade", "snat", "dnat"] as const),
]);

/** Without the jump nobody asks policy; dropping instead would cut the host off before its failsafe ports. */
const isPolicyOfTheHost = ({ action, ifRefused }: Rule, { isHostWide }: Place): boolean =>
  isHostWide && ifRefused !== "close" && (action?.kind === "jump" || action?.kind === "goto");

function unrecorded(rule: Rule): Rule[] {
  const { action } = rule;
  if (action?.kind !== "decide" || action.nflog === undefined) return [];
  const comments = [...(rule.comments ?? []), "Not recorded: refused by the kernel"];
  return [{ ...rule, action: { kind: "decide", decision: action.decision }, comments }];
}

/** From the rule's own matches to those every kernel has. */
const WIDTHS: readonly ReadonlySet<Match["kind"]>[] = [
  new Set(["interface", "family", "mark", "protocol", "nets", "address", "ports", "udpPort"] as const),
  new Set(["interface", "family", "mark", "protocol", "nets", "address"] as const),
  new Set(["interface", "family", "mark"] as const),
];

/** The rule's packets, and then more, are led to another chain. */
function detours(rule: Rule): Rule[] {
  const { ifRefused, action } = rule;
  if (typeof ifRefused !== "object") return [];
  const whole = rule.match ?? [];
  const kept = whole.filter(({ kind }) => WIDTHS[0]?.has(kind));
  const widths = action?.kind === "drop" ? [kept] : kept.length === whole.length ? [whole] : [whole, kept];
  return widths.map((match) => ({
    ...(match.length === 0 ? {} : { match }),
    action: { kind: action?.kind === "goto" ? "goto" : "jump", chain: ifRefused.chain },
    comments: ["Led elsewhere: the rule here was refused by the kernel"],
    ifRefused,
  }));
}

function closings(rule: Rule, { isHostWide }: Place): Rule[] {
  const { action } = rule;
  // Where a mark is as it should be, setting it changes nothing.
  const unlike: Match[] = action?.kind === "setMark" ? [{ ...action, kind: "mark", negated: true }] : [];
  const whole = [...(rule.match ?? []), ...unlike];
  const found: Rule[] = action?.kind === "drop" ? [] : [closed(rule, whole)];
  let size = whole.length;
  // Without its ports or prefixes a rule on some packet of the host would be one on its failsafe ports too.
  for (const kinds of isHostWide ? WIDTHS.slice(0, 1) : WIDTHS) {
    const match = whole.filter((m) => kinds.has(m.kind) && !(m.kind === "ports" && (m.sets?.length ?? 0) > 0));
    if (match.length === size) continue;
    size = match.length;
    if (isHostWide && match.length === 0) break;
    found.push(closed(rule, match));
  }
  return found;
}

const closed = (rule: Rule, match: readonly Match[]): Rule => ({
  match,
  action: drop,
  comments: ["Closed: the rule here was refused by the kernel"],
  ...(rule.annotations === undefined ? {} : { annotations: rule.annotations }),
});
const leftOut = ({ annotations }: Rule): Rule => ({
  comments: ["Left out: refused by the kernel"],
  ...(annotations === undefined ? {} : { annotations }),
});

export const namesAny = (rule: Rule, sets: ReadonlySet<SetId>): boolean =>
  sets.size > 0 && rule.match?.some((m) => [...sets].some((set) => namesSet(m, set))) === true;

/** What is done instead, for an operator. */
export function describeStandIn(standIn: Rule): string {
  if (standIn.action === undefined) return "it is left out";
  if (typeof standIn.ifRefused === "object") return standIn.ifRefused.meaning;
  if (standIn.action.kind !== "drop") return "it decides as it should, and is not recorded";
  const kinds = [...new Set((standIn.match ?? []).map(({ kind }) => WORDS[kind] ?? kind))];
  if (kinds.length === 0) return "packets that come to its place are dropped";
  return `packets that come to its place with the same ${kinds.join(", ")} are dropped`;
}
const WORDS: Readonly<Partial<Record<Match["kind"], string>>> = {
  nets: "prefixes",
  ipSet: "IP set",
  ipPortSet: "IP set",
  udpPort: "ports",
  mark: "marks",
};

/** Which settings ask for what the rule needs of the kernel, as far as that is more than every kernel has. */
export function neededFor({ match = [], action }: Rule): string | undefined {
  const needs = [
    ...match.map((m) => MATCH_NEEDS[m.kind]),
    action === undefined ? undefined : ACTION_NEEDS[recordsFlows(action) ? "nflog" : action.kind],
  ];
  return needs.filter((need) => need !== undefined).join("; ") || undefined;
}

const recordsFlows = (action: Action): boolean => action.kind === "decide" && action.nflog !== undefined;

const MATCH_NEEDS: Readonly<Partial<Record<Match["kind"], string>>> = {
  connectionsAbove:
    "ingressMaxConnections, egressMaxConnections of QoS annotations (the kernel's nft_connlimit, xt_connlimit)",
  limit: "LogActionRateLimit (nft_limit, xt_limit)",
  reversePathFails: "the check of workloads' source addresses (nft_fib, xt_rpfilter)",
  localAddress: "rules on the host's own addresses (nft_fib, xt_addrtype)",
};
const ACTION_NEEDS: Readonly<Partial<Record<Action["kind"], string>>> = {
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
