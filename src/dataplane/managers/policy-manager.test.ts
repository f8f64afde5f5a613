import { expect, test } from "bun:test";
import type { PolicyId, ProtoPolicy, ProtoRule } from "../../calc/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { RuleTable, FamilyRules } from "../rules/rule-table.ts";
import { SetNameOwners } from "../rules/name-owners.ts";
import { ChainNames } from "../rules/names.ts";
import type { Chain } from "../rules/rule.ts";
import { PolicyManager } from "./policy-manager.ts";

/** So short that two characters of a name are a hash. */
const LIMIT = 11;

/** The chains that the manager has set in the filter table. */
function bench(limit = LIMIT) {
  const chains = new Map<string, Chain>();
  const table = (isKept: boolean): RuleTable => ({
    tableName: isKept ? "filter" : "raw",
    version: 4,
    setChain: (chain) => void (isKept && chains.set(chain.name, chain)),
    removeChain: (name) => void (isKept && chains.delete(name)),
    isNeeded: () => true,
    setHook: () => {},
  });
  const tables = { raw: table(false), mangle: table(false), nat: table(false), filter: table(true) };
  const families: FamilyRules[] = [{ version: 4, tables, sets: {} as FamilyRules["sets"] }];
  const names = new ChainNames(limit);
  const config = { marks: { pass: 2 }, flowLogs: false } as RulesConfig;
  const manager = new PolicyManager({ config, names, families, setOwners: new SetNameOwners(), logger: silentLogger });
  const decisions = (id: PolicyId) => {
    const chain = chains.get(names.policy("ingress", id));
    return chain?.kind === "rules" ? chain.rules.map(({ action }) => action?.kind === "decide" && action.decision) : [];
  };
  return { names, decisions, send: (message: ManagerMessage) => manager.onUpdate(message) };
}

const id = (name: string): PolicyId => ({ name, namespace: "ns", kind: "NetworkPolicy" });
const lists = ["srcNet", "dstNet", "notSrcNet", "notDstNet", "srcPorts", "dstPorts", "notSrcPorts", "notDstPorts"];
const sets = ["srcIpSetIds", "dstIpSetIds", "dstIpPortSetIds", "srcNamedPortIpSetIds", "dstNamedPortIpSetIds"];
const nots = ["notSrcIpSetIds", "notDstIpSetIds", "notSrcNamedPortIpSetIds", "notDstNamedPortIpSetIds"];
const allow = {
  action: "allow",
  ...Object.fromEntries([...lists, ...sets, ...nots].map((field) => [field, []])),
} as unknown as ProtoRule;
const open: ProtoPolicy = {
  ...{ inboundRules: [allow], outboundRules: [], untracked: false, preDnat: false, namespace: "ns" },
  ...{ originalSelector: "all()", performanceHints: [], tier: "default" },
};
const update = (of: PolicyId): ManagerMessage => ({ type: "activePolicyUpdate", id: of, policy: open });
const remove = (of: PolicyId): ManagerMessage => ({ type: "activePolicyRemove", id: of });

test("two policies whose chains have the same name deny everything", () => {
  const { names, decisions, send } = bench();
  const byName = new Map<string, PolicyId>();
  let pair: readonly [PolicyId, PolicyId] | undefined;
  for (let i = 0; pair === undefined && i < 10_000; i++) {
    const policy = id(`a-policy-${i}`);
    const name = names.policy("ingress", policy);
    const other = byName.get(name);
    if (other !== undefined && names.policy("egress", other) !== name) pair = [other, policy];
    byName.set(name, policy);
  }
  if (pair === undefined) throw new Error("no two policies with one chain name");
  const [first, second] = pair;
  send(update(first));
  expect(decisions(first)).toEqual(["allow"]);
  send(update(second));
  expect([decisions(first), decisions(second)]).toEqual([["deny"], ["deny"]]);
  send(update(first));
  expect(decisions(first)).toEqual(["deny"]);
  send(remove(second));
  expect(decisions(first)).toEqual(["deny"]); // until it changes
  send(update(first));
  expect(decisions(first)).toEqual(["allow"]);
  send(remove(first));
  expect(decisions(first)).toEqual([]);
});

test("policies with unique names are not affected, and are removed", () => {
  const { decisions, send } = bench(200);
  for (const name of ["a", "b"]) send(update(id(name)));
  send(remove(id("b")));
  expect([decisions(id("a")), decisions(id("b"))]).toEqual([["allow"], []]);
});
