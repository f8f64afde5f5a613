// What is written instead of a rule that the kernel refuses. It never lets pass what the rule would have stopped: a rule
// that only lets pass, rewrites or records is left out; any other stops every packet that comes to its place from the
// same interface with the same marks, since whether the rule meant the packet cannot be asked.
import {
  type Action,
  type Chain,
  chainRules,
  drop,
  type Layer,
  type Match,
  type Rule,
  type RuleChain,
} from "./rule.ts";

/** The chain with stand-ins for those of its rules, counted over all of `chainRules`, that are aside. */
export function withStandIns<C extends Chain>(
  offered: C,
  layer: Layer,
  isAside: (index: number, rule: Rule) => boolean,
): C {
  if (!chainRules(offered).some((rule, i) => isAside(i, rule))) return offered;
  let index = 0;
  const replace = (rules: readonly Rule[]) =>
    rules.map((rule) => (isAside(index++, rule) ? standInFor(rule, layer) : rule));
  if (offered.kind === "rules") return { ...offered, rules: replace((offered as RuleChain).rules) };
  const before = replace(offered.before ?? []);
  const otherwise = replace(offered.otherwise);
  return { ...offered, before, otherwise, after: replace(offered.after ?? []) };
}

function standInFor(rule: Rule, layer: Layer): Rule {
  const annotations = rule.annotations === undefined ? {} : { annotations: rule.annotations };
  if (mayBeLeftOut(rule, layer)) return { comments: ["Left out: refused by the kernel"], ...annotations };
  const match = (rule.match ?? []).filter(({ kind }) => kind === "interface" || kind === "mark");
  return { match, action: drop, comments: ["Closed: the rule here was refused by the kernel"], ...annotations };
}

/** Without it no more passes than with it. */
export function mayBeLeftOut({ match, action }: Rule, layer: Layer): boolean {
  if (layer === "nat" || action === undefined) return true; // nothing is decided there
  if (match?.some(({ kind }) => kind === "connectionsAbove") === true) return true; // a limit is no policy
  if (action.kind === "decide") return action.decision === "allow";
  return HARMLESS.has(action.kind);
}

const HARMLESS: ReadonlySet<Action["kind"]> = new Set([
  ...(["accept", "log", "nflog", "dscp", "offload", "notrack", "dropOverRate"] as const),
  ...(["masquerade", "snat", "dnat"] as const),
]);

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
  offload: "NFTablesFlowTableOffload (nft_flow_offload)",
  dropOverRate: "ingressPacketRate, egressPacketRate of QoS annotations (nft_limit, xt_limit)",
};
