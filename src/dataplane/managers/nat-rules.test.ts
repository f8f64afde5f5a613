import { expect, test } from "bun:test";
import type { NatInfo, WorkloadEndpointId } from "../../calc/index.ts";
import type { IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import type { RuleTable, RuleTables, FamilyRules } from "../rules/rule-table.ts";
import type { Chain } from "../rules/rule.ts";
import { chainText, plainConfig } from "../rules/testing.ts";
import { EndpointRegistry } from "./endpoint-registry.ts";
import { FloatingIps } from "./nat-rules.ts";

/** Records the chains that are set in the nat table. */
function family(version: IpVersion): { family: FamilyRules; text: (name: string) => string[] } {
  const chains = new Map<string, Chain>();
  const nat = { tableName: "nat", version, setChain: (chain) => void chains.set(chain.name, chain) } as RuleTable;
  const text = (name: string) => {
    const chain = chains.get(name);
    return chain?.kind === "rules" ? chainText(chain, "nat", plainConfig(), version) : ["none"];
  };
  return { family: { version, tables: { nat } as RuleTables, sets: undefined as never }, text };
}

function open(isEnabled: boolean) {
  const [v4, v6] = [family(4), family(6)];
  const registry = new EndpointRegistry(() => false);
  const manager = new FloatingIps({ families: [v4.family, v6.family], registry, isEnabled });
  let made = 0;
  return {
    v4: v4.text,
    v6: v6.text,
    /** Workloads with these claims: external → internal. */
    send: (orchestrator: string, ...claims: readonly Readonly<Record<string, string>>[]) => {
      for (const claim of claims) {
        const nat = (desired: IpVersion): NatInfo[] =>
          Object.entries(claim)
            .filter(([external]) => external.includes(":") === (desired === 6))
            .map(([external, internal]) => ({ external: external as IpAddress, internal: internal as IpAddress }));
        const id: WorkloadEndpointId = { orchestrator, workload: `w${made}`, endpoint: "eth0" };
        registry.onUpdate({
          type: "workloadEndpointUpdate",
          id,
          endpoint: {
            ...{
              state: "active",
              name: `cali${made++}`,
              mac: "",
              profileIds: [],
              tiers: [],
              ipv4Nets: [],
              ipv6Nets: [],
            },
            ...{ ipv4Nat: nat(4), ipv6Nat: nat(6), allowSpoofedSourcePrefixes: [], annotations: {}, qosPolicies: [] },
            ...{ isIstioAmbient: false, liveMigrationRole: "none" },
          },
        });
      }
      registry.resolve?.();
      manager.apply();
    },
  };
}
const to = (external: string, internal: string) => `--destination ${external} --jump DNAT --to-destination ${internal}`;
const hairpin = (internal: string, external: string) =>
  `--destination ${internal} --source ${internal} --jump SNAT --to-source ${external} --random-fully`;

test("FD-053 floating addresses of OpenStack workloads are translated in both families, without a setting", () => {
  const { send, v4, v6 } = open(false);
  send("openstack", { "203.0.113.5": "10.65.0.2", "2001:db8:f::5": "fd65::2" });
  expect(v4("cali-fip-dnat")).toEqual([to("203.0.113.5", "10.65.0.2")]);
  expect(v4("cali-fip-snat")).toEqual([hairpin("10.65.0.2", "203.0.113.5")]);
  expect(v6("cali-fip-dnat")).toEqual([to("2001:db8:f::5", "fd65::2")]);
  expect(v6("cali-fip-snat")).toEqual([hairpin("fd65::2", "2001:db8:f::5")]);
});

test("FD-054 floating addresses of other workloads are translated only if the feature is enabled", () => {
  const off = open(false);
  off.send("k8s", { "203.0.113.5": "10.65.0.2" });
  expect([off.v4("cali-fip-dnat"), off.v4("cali-fip-snat")]).toEqual([[], []]);
  const on = open(true);
  on.send("k8s", { "203.0.113.5": "10.65.0.2" });
  expect(on.v4("cali-fip-dnat")).toEqual([to("203.0.113.5", "10.65.0.2")]);
});

test("FD-054 rules are sorted; an address belongs to the lowest internal address; hairpin traffic gets the lowest external address", () => {
  const { send, v4 } = open(true);
  send(
    "k8s",
    { "203.0.113.9": "10.65.0.3", "203.0.113.5": "10.65.0.3" },
    { "203.0.113.5": "10.65.0.2", "203.0.113.7": "10.65.0.2" },
  );
  expect(v4("cali-fip-dnat")).toEqual([
    to("203.0.113.5", "10.65.0.2"),
    to("203.0.113.7", "10.65.0.2"),
    to("203.0.113.9", "10.65.0.3"),
  ]);
  expect(v4("cali-fip-snat")).toEqual([hairpin("10.65.0.2", "203.0.113.5"), hairpin("10.65.0.3", "203.0.113.9")]);
});
