// What is written instead of a rule that the kernel refuses. It never lets pass what the rule would have stopped: a rule
// that only lets pass, rewrites or records is left out; any other stops every packet that comes to its place from the
// same interface with the same marks, since whether the rule meant the packet cannot be asked.
import { drop, type Action, type Layer, type Match, type Rule } from "../rules/rule.ts";

export function standInFor(rule: Rule, layer: Layer): Rule {
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
    action === undefined ? undefined : ACTION_NEEDS[action.kind],
  ];
  return needs.filter((need) => need !== undefined).join("; ") || undefined;
}

const MATCH_NEEDS: Readonly<Partial<Record<Match["kind"], string>>> = {
  connectionsAbove: "ingressMaxConnections, egressMaxConnections of QoS annotations (the kernel's nft_connlimit)",
  limit: "LogActionRateLimit (nft_limit)",
  reversePathFails: "the check of workloads' source addresses (nft_fib_ipv4, nft_fib_ipv6)",
  localAddress: "rules on the host's own addresses (nft_fib_ipv4, nft_fib_ipv6)",
};
const ACTION_NEEDS: Readonly<Partial<Record<Action["kind"], string>>> = {
  log: "action Log of a policy (nft_log)",
  nflog: "flow logs (nft_log)",
  reject: "NftablesFilterDenyAction Reject (nft_reject)",
  masquerade: "natOutgoing of an IPPool (nft_masq)",
  snat: "NATOutgoingAddress (nft_nat)",
  dnat: "floating IPs (nft_nat)",
  notrack: "doNotTrack of a policy (nft_ct)",
  offload: "NFTablesFlowTableOffload (nft_flow_offload)",
  dropOverRate: "ingressPacketRate, egressPacketRate of QoS annotations (nft_limit)",
};
