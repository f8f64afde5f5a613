// Builds the guard rules, which Calico does not have. They are in a separate table (`inet calico-guard`), so that the other
// tables are identical to Calico's:
//
// - Workload interfaces have `route_localnet` set, so a workload with CAP_NET_RAW could send packets to the host's
//   loopback addresses. They are dropped, unless the host itself translated the destination (CVE-2020-8558).
// - The kernel assigns an IPv6 address to every interface, through which a workload can reach its host. If IPv6 support is
//   off, policy does not cover these packets, so all IPv6 packets from and to workloads are dropped.
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import { type RulesConfig, workloadPatterns } from "./config.ts";
import type { RuleTable } from "./rule-table.ts";
import { chain, drop, inInterface, isNet, jump, type Match, outInterface, returnAction, type Rule } from "./rule.ts";

export interface GuardOptions {
  readonly config: RulesConfig;
  readonly isIpv6Supported: boolean;
  /** The family of the table; an `inet` table processes both. */
  readonly family: IpVersion | "both";
}

const LOOPBACK = "127.0.0.0/8" as Cidr;
const LOOPBACK_CHAIN = "cali-guard-loopback";
const NO_IPV6_CHAIN = "cali-guard-no-ipv6";

/** Sets the guard chains, and the rules in the kernel's chains that lead to them. */
export function installGuard(table: RuleTable, { config, isIpv6Supported, family }: GuardOptions): void {
  const patterns = workloadPatterns(config);
  /** The match for packets of the family; undefined if the table does not process them. */
  const packetsOf = (version: IpVersion): readonly Match[] | undefined =>
    family === "both" ? [{ kind: "family", version }] : family === version ? [] : undefined;
  const ofIpv4 = packetsOf(4);
  const ofIpv6 = isIpv6Supported ? undefined : packetsOf(6);

  const input: Rule[] = [];
  if (ofIpv6 !== undefined) {
    const toChain: Rule = { match: ofIpv6, action: jump(NO_IPV6_CHAIN), comments: ["IPv6 support is off."] };
    const drops = patterns.flatMap((pattern): Rule[] => [
      { match: [inInterface(pattern)], action: drop },
      { match: [outInterface(pattern)], action: drop },
    ]);
    table.setChain(chain(NO_IPV6_CHAIN, drops));
    table.setHook("FORWARD", "insert", [toChain]);
    table.setHook("OUTPUT", "insert", [toChain]);
    input.push(toChain);
  }
  if (ofIpv4 !== undefined) {
    // A packet without a connection has no conntrack status, so the second rule drops it.
    table.setChain(chain(LOOPBACK_CHAIN, [{ match: [{ kind: "ctDnat" }], action: returnAction }, { action: drop }]));
    for (const pattern of patterns)
      input.push({
        match: [inInterface(pattern), ...ofIpv4, isNet("destination", LOOPBACK)],
        action: jump(LOOPBACK_CHAIN),
        comments: ["Only translated packets reach a loopback address."],
        ifRejected: "drop",
      });
  }
  if (input.length > 0) table.setHook("INPUT", "insert", input);
}
