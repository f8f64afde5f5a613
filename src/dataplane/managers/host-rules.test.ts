import { expect, test } from "bun:test";
import type { RuleTables } from "../rules/rule-table.ts";
import { ChainNames } from "../rules/names.ts";
import type { Chain, Rule } from "../rules/rule.ts";
import { plainConfig } from "../rules/testing.ts";
import { ChainPlacer } from "./chain-placer.ts";
import { EndpointRegistry } from "./endpoint-registry.ts";
import { HostRules } from "./host-rules.ts";
import { PolicySelectors } from "./policy-selectors.ts";

test("FD-111 traffic to a workload skips the policy of the endpoint *, but not that of an endpoint with an interface name", () => {
  const chains = new Map<string, Chain>();
  const table = (tableName: string) => ({
    setChain: (chain: Chain) => void chains.set(`${tableName} ${chain.name}`, chain),
    removeChain: () => {},
  });
  const tables = { raw: table("raw"), mangle: table("mangle"), filter: table("filter") } as unknown as RuleTables;
  const families = [{ version: 4 as const, tables, sets: undefined as never }];
  const config = plainConfig();
  const registry = new EndpointRegistry(() => false);
  const placer = new ChainPlacer(config, families);
  const names = new ChainNames(28);
  const rules = new HostRules({ config, names, families, registry, selectors: new PolicySelectors(), placer });
  for (const [endpointId, name] of [
    ["all", "*"],
    ["one", "eth0"],
  ] as const)
    registry.onUpdate({
      type: "hostEndpointUpdate",
      endpointId,
      endpoint: {
        ...{ name, profileIds: [], tiers: [], untrackedTiers: [], preDnatTiers: [], forwardTiers: [] },
        ...{ expectedIpv4Addrs: [], expectedIpv6Addrs: [], qosPolicies: [] },
      },
    });
  registry.onUpdate({ type: "interfaceState", name: "eth0", index: 2, state: "up" });
  registry.resolve?.();
  rules.apply();
  const dispatch = chains.get("mangle cali-to-host-endpoint");
  if (dispatch?.kind !== "dispatch") throw new Error("no dispatch");
  const describeRule = ({ comments = [], action }: Rule) => comments[0] ?? action?.kind;
  expect([...dispatch.targets.keys()]).toEqual(["eth0"]);
  expect(dispatch.before?.map(describeRule)).toEqual([]);
  expect(dispatch.otherwise.map(describeRule)).toEqual([
    "Skip egress WHEP policy for traffic to local workload",
    "goto",
  ]);
});
