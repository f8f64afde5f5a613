// Checks which nftables features the kernel supports, with dry runs of transactions that use them.
import { interfaceNameBytes, NftError, nftMatch as m, type NftChange, type NftRuleset } from "../../kernel/index.ts";
import { describeError } from "../../lib/log/log.ts";
import type { DataplaneFacts, DataplaneParameters } from "../parameters.ts";

const TWO_RANGES = [
  { first: 1, last: 2 },
  { first: 80, last: 90 },
];

/**
 * Returns the reason to use iptables; undefined if nftables is used. `Auto` selects nftables if the kernel supports all
 * required features, unless kube-proxy runs in IPVS mode, which needs rules that only the iptables renderer has.
 */
export function reasonForIptables(
  mode: DataplaneParameters["NFTablesMode"],
  facts: Pick<DataplaneFacts, "ipvs">,
  ruleset: NftRuleset,
): string | undefined {
  if (mode === "Enabled") return undefined;
  if (mode === "Disabled") return "NFTablesMode is Disabled";
  if (facts.ipvs) return "kube-proxy runs in IPVS mode, which needs iptables";
  return findMissingFeature(ruleset);
}

/** Returns the missing feature; undefined if the kernel supports everything that the renderer uses. */
function findMissingFeature(ruleset: NftRuleset): string | undefined {
  const table = { family: "ip", name: `calico-probe-${process.pid}` } as const;
  const guard = { ...table, family: "inet" } as const;
  const rule = (chain: string, expressions: ReturnType<typeof m.interfaceName>): NftChange => ({
    op: "appendRule",
    table,
    chain,
    rule: { expressions },
  });
  const base = { policy: "accept" } as const;
  const changes: NftChange[] = [
    { op: "addTable", table },
    { op: "addChain", table, chain: "raw", base: { ...base, type: "filter", hook: "prerouting", priority: -300 } },
    { op: "addChain", table, chain: "forward", base: { ...base, type: "filter", hook: "forward", priority: 0 } },
    { op: "addChain", table, chain: "post", base: { ...base, type: "nat", hook: "postrouting", priority: 110 } },
    { op: "addChain", table, chain: "own" },
    { op: "addSet", table, set: "nets", type: { key: ["ipv4_addr"], interval: true } },
    { op: "addSet", table, set: "services", type: { key: ["ipv4_addr", "inet_proto", "inet_service"] } },
    { op: "addSet", table, set: "map", type: { key: ["ifname"], value: "verdict" } },
    {
      op: "addElements",
      table,
      set: "map",
      elements: [{ key: interfaceNameBytes("cali0"), value: { kind: "goto", chain: "own" } }],
    },
    rule("raw", [...m.reversePathFails(), m.drop]),
    rule("raw", [m.notrack]),
    rule("raw", [...m.addressIsLocal("destination"), m.accept]),
    rule("forward", m.interfaceVerdict("in", "map")),
    rule("forward", [...m.ctState(["established", "related"]), m.counter, m.accept]),
    rule("forward", [...m.addressInSet(4, "source", "nets"), ...m.setMark(1, 1)]),
    rule("forward", [...m.addressAndPortInSet(4, "destination", "services"), m.accept]),
    rule("forward", [...m.protocol(6), ...m.ports("destination", TWO_RANGES), m.accept]),
    rule("forward", [m.rateLimit(10, "second", 5), { kind: "log", prefix: "probe", level: 6 }]),
    rule("forward", [m.reject(4)]),
    rule("post", m.masquerade({ fullyRandom: true })),
    { op: "addTable", table: guard },
    { op: "addChain", table: guard, chain: "in", base: { ...base, type: "filter", hook: "input", priority: -1 } },
    { op: "appendRule", table: guard, chain: "in", rule: { expressions: [...m.family(4), ...m.ctIsDnat(), m.drop] } },
  ];
  try {
    ruleset.dryRun(changes);
    return undefined;
  } catch (error) {
    return error instanceof NftError ? `the kernel rejects a required feature: ${error.message}` : describeError(error);
  }
}

/** True if the kernel supports nftables for ARP packets. */
export function hasArpTables(ruleset: NftRuleset): boolean {
  const table = { family: "arp", name: `calico-probe-${process.pid}` } as const;
  const base = { type: "filter", hook: "output", priority: 0, policy: "accept" } as const;
  try {
    ruleset.dryRun([
      { op: "addTable", table },
      { op: "addChain", table, chain: "output", base },
    ]);
    return true;
  } catch {
    return false;
  }
}

/** True if the kernel supports flowtables and rules that use them. */
export function hasFlowOffload(ruleset: NftRuleset): boolean {
  const table = { family: "ip", name: `calico-probe-${process.pid}` } as const;
  const base = { type: "filter", hook: "forward", priority: 0, policy: "accept" } as const;
  try {
    ruleset.dryRun([
      { op: "addTable", table },
      { op: "addFlowtable", table, flowtable: "probe", priority: 0, devices: [] },
      { op: "addChain", table, chain: "forward", base },
      { op: "appendRule", table, chain: "forward", rule: { expressions: [{ kind: "offload", flowtable: "probe" }] } },
    ]);
    return true;
  } catch {
    return false;
  }
}
