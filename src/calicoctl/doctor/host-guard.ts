// Checks whether the guard table still drops all packets of workloads because Felix has not programmed rules since boot, and
// whether IPv6 packets of workloads bypass policy.
import { type GuardState, guardState, hasPolicyRules, Nft } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { HostFacts } from "./facts.ts";
import type { Finding } from "./finding.ts";

export interface GuardFacts {
  readonly state: GuardState;
  /** The families for which an agent has policy rules in the kernel. */
  readonly policyFor: readonly IpVersion[];
}

/** Returns undefined if doctor may not read the rules, or the kernel has no nf_tables. */
export async function readGuard(): Promise<GuardFacts | undefined> {
  try {
    using nft = new Nft();
    const state = guardState(nft);
    const policyFor: IpVersion[] = [];
    for (const version of [4, 6] as const) if (await hasPolicyRules(nft, version)) policyFor.push(version);
    return { state, policyFor };
  } catch {
    return undefined;
  }
}

export function* closedWorkloads(host: HostFacts): Generator<Finding> {
  if (host.guard?.state !== "closed") return;
  const felix = host.parts.find(({ name }) => name === "felix");
  yield {
    id: "workloads-closed",
    severity: "error",
    object: `host ${host.node}`,
    problem: `packets of all workloads on ${host.node} are dropped: Felix has not programmed rules since boot`,
    cause:
      "a pod was started before Felix had programmed its rules. The CNI plugin then adds a table that drops the packets of all workloads, which Felix opens together with its first rules",
    evidence: [
      "the nftables table inet calico-guard is in its closed state",
      felix?.isRunning === true ? "Felix is running" : "Felix is not running",
    ],
    fix: "start calico-node; if it is running, its log shows why Felix is not ready. If an agent other than calico-ts runs on this host: nft delete table inet calico-guard, and delete /var/lib/calico/guard",
    node: host.node,
  };
}

export function* ipv6WithoutRules(host: HostFacts): Generator<Finding> {
  const { guard } = host;
  if (guard === undefined || guard.state !== "absent") return;
  if (!guard.policyFor.includes(4) || guard.policyFor.includes(6)) return;
  if (host.sysctl("net/ipv6/conf/all/disable_ipv6") !== "0") return;
  yield {
    id: "ipv6-without-rules",
    severity: "error",
    object: `host ${host.node}`,
    problem: `no rules apply to IPv6 packets of workloads on ${host.node}: pods can reach the node by its link-local addresses, regardless of policy`,
    cause:
      "the rules were programmed with ipv6Support off by an agent without a guard table: Calico, or an older version of calico-ts",
    evidence: ["the kernel has policy rules for IPv4 and none for IPv6", "there is no table inet calico-guard"],
    fix: "set ipv6Support: true in FelixConfiguration, or run calico-node of this version, which drops these packets",
    node: host.node,
    setting: "FelixConfiguration(default) spec.ipv6Support: true",
  };
}
