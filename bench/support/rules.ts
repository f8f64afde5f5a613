// Builds the cluster of the dataplane benchmarks, 1,000 policies of which ten apply to each endpoint, and programs it.
import { spawnSync } from "node:child_process";
import type { DataplaneMessage, PolicyId } from "../../src/calc/index.ts";
import { rulesConfig } from "../../src/dataplane/index.ts";
import { detectFeatures } from "../../src/dataplane/iptables/detect.ts";
import { createRuleBackend, type RulesKernel } from "../../src/dataplane/rule-backend.ts";
import { createRuleManagers } from "../../src/dataplane/rule-managers.ts";
import { ConfigEngine } from "../../src/felix/config/index.ts";
import { Ipsets, Iptables, Nft } from "../../src/kernel/index.ts";
import type { Cidr } from "../../src/lib/ip/ip.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { rule } from "../../test/functional/dataplane/messages.ts";

export { rule };

export const POLICIES = 1000;
const POLICIES_PER_ENDPOINT = 10;
export const interfaceName = (e: number): string => `cali${e.toString(16).padStart(11, "0")}`;
export const address = (n: number): string => `10.${64 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}/32`;

export const id = (p: number): PolicyId => ({
  kind: "NetworkPolicy",
  namespace: `ns${p % 10}`,
  name: `default.policy${p}`,
});
const tcp = { name: "tcp" };

/** @param another an additional rule before the others */
export function policy(p: number, port: number, another = false): DataplaneMessage {
  return {
    type: "activePolicyUpdate",
    id: id(p),
    policy: {
      inboundRules: [
        ...(another ? [rule({ protocol: tcp, srcNet: ["198.51.100.0/24" as Cidr] })] : []),
        rule({
          protocol: tcp,
          srcIpSetIds: [`s:from${p % 700}`],
          dstPorts: [
            { first: port, last: port },
            { first: 30000, last: 30010 },
          ],
        }),
        rule({ action: "deny", protocol: { name: "udp" }, srcNet: ["192.0.2.0/24" as Cidr] }),
      ],
      outboundRules: [
        rule({ protocol: tcp, dstIpSetIds: [`s:to${p % 100}`], dstPorts: [{ first: port, last: port }] }),
        rule({ protocol: { name: "udp" }, dstPorts: [{ first: 53, last: 53 }] }),
      ],
      untracked: false,
      preDnat: false,
      namespace: `ns${p % 10}`,
      originalSelector: `app == "app${p % 100}" && projectcalico.org/namespace == "ns${p % 10}"`,
      performanceHints: [],
      tier: "default",
    },
  };
}
/** Endpoints are numbered from 0. Each has ten policies; hundreds of policies share a selector. */
export function* cluster(options: {
  readonly endpoints: number;
  readonly largeSet: boolean;
}): Iterable<DataplaneMessage> {
  for (let s = 0; s < 700; s++)
    yield {
      type: "ipSetUpdate",
      id: `s:from${s}`,
      setType: "net",
      members: Array.from({ length: 14 }, (_, i) => address(s * 14 + i)),
    };
  for (let s = 0; s < 100; s++)
    yield {
      type: "ipSetUpdate",
      id: `s:to${s}`,
      setType: "net",
      members: Array.from({ length: 200 }, (_, i) => address(s * 200 + i)),
    };
  if (options.largeSet)
    yield {
      type: "ipSetUpdate",
      id: "s:large",
      setType: "net",
      members: Array.from({ length: 100_000 }, (_, i) => address(i)),
    };
  for (let p = 0; p < POLICIES; p++) yield policy(p, 9000);
  yield {
    type: "activeProfileUpdate",
    name: "kns.ns",
    profile: {
      inboundRules: [...(options.largeSet ? [rule({ srcIpSetIds: ["s:large"] })] : []), rule({})],
      outboundRules: [rule({})],
    },
  };
  for (let e = 0; e < options.endpoints; e++) {
    const policies = Array.from({ length: POLICIES_PER_ENDPOINT }, (_, i) => id((e % 100) + 100 * i));
    yield {
      type: "workloadEndpointUpdate",
      id: { orchestrator: "k8s", workload: `ns/pod${e}`, endpoint: "eth0" },
      endpoint: {
        state: "active",
        name: interfaceName(e),
        mac: "",
        profileIds: ["kns.ns"],
        ipv4Nets: [address(e) as Cidr],
        ipv6Nets: [],
        tiers: [{ name: "default", ingressPolicies: policies, egressPolicies: policies, defaultAction: "Deny" }],
        ipv4Nat: [],
        ipv6Nat: [],
        allowSpoofedSourcePrefixes: [],
        annotations: {},
        qosPolicies: [],
        isIstioAmbient: false,
        liveMigrationRole: "none",
      },
    };
  }
}

const engine = new ConfigEngine({ exists: () => true, findExecutable: (name) => name }, { hostname: "host0" });
const parameters = engine.config;
const facts = {
  hostname: "host0",
  ipipEnabled: false,
  vxlanEnabled: false,
  vxlanEnabledV6: false,
  noEncapNeeded: false,
  ipvs: false,
};

export function openRules(kernel: RulesKernel) {
  const config = rulesConfig(parameters, facts, kernel.backend);
  const rules = createRuleBackend(kernel, { config, parameters, versions: [4], logger: silentLogger });
  const { managers } = createRuleManagers({
    config,
    families: rules.families,
    chainNameLimit: rules.chainNameLimit,
    hostname: "host0",
    externalNodes: [],
    floatingIps: false,
    logger: silentLogger,
  });
  const { signal } = new AbortController();
  return {
    send: (message: DataplaneMessage) => {
      for (const manager of managers) manager.onUpdate(message);
    },
    apply: async () => {
      for (const manager of managers) manager.resolve?.();
      for (const manager of managers) await manager.apply?.(signal);
      for (const set of rules.sets) await set.apply(signal);
      await Promise.all(rules.tables.map((table) => table.apply(signal)));
      for (const set of rules.sets) await set.applyDeletions(signal);
    },
  };
}

const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
export const kernels: Readonly<Record<string, () => RulesKernel>> = {
  nftables: () => ({ backend: "nftables", ruleset: new Nft() }),
  "iptables-nft": () => iptables("nft"),
  "iptables-legacy": () => iptables("legacy"),
};
function iptables(variant: "legacy" | "nft"): RulesKernel {
  return {
    backend: "iptables",
    variant,
    features,
    ipsets: new Ipsets(),
    iptables: (family) => new Iptables({ family, variant }),
  };
}

/** Removes all rules and sets of this network namespace. */
export function cleanRules(): void {
  spawnSync("nft", ["flush", "ruleset"]);
  for (const tool of ["iptables-legacy", "iptables-nft"])
    for (const table of ["raw", "mangle", "nat", "filter"]) {
      spawnSync(tool, ["-t", table, "-F"]);
      spawnSync(tool, ["-t", table, "-X"]);
    }
  spawnSync("ipset", ["destroy"]);
}
