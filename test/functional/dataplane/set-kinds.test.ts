// Tests the replacement of sets whose type changes. Hash sets have other names than the interval sets of Calico. A set that
// changes its type, and sets of a version that gave hash sets the names of interval sets, are replaced in one transaction, so
// that no packet is judged by a partial state.
import { expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import { Nft, type NftChange, type NftRuleset } from "../../../src/kernel/index.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

async function arrange() {
  const host = await DataplaneHost.create("nftables");
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  host.prober.listen(b.target, "tcp", 80);
  const friends = (...members: string[]): DataplaneMessage => ({
    ...{ type: "ipSetUpdate", id: "s:friends", setType: "net", members },
  });
  const state: DataplaneMessage[] = [
    allowProfile,
    friends(`${a.v4}/32`),
    policy("p", [rule({ srcIpSetIds: ["s:friends"] })]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  ];
  const sets = () => [...host.namespace.run("nft", ["list", "sets"]).matchAll(/set (cali40s\S+)/g)].map(([, n]) => n);
  const reaches = () => host.probe([{ from: a.target, to: b.v4, port: 80 }]);
  const ruleset = host.inside(() => new Nft());
  return { host, a, state, sets, reaches, ruleset };
}

test("a set that gets its first prefix or loses its last one is replaced in one transaction", async () => {
  const { host, a, state, sets, reaches, ruleset } = await arrange();
  await using _ = host;
  using __ = ruleset;
  host.start();
  await host.send(...state);
  expect([sets(), await reaches()]).toEqual([["cali40s-friends-hash"], ["reached"]]);
  const delta = (added: string[], removed: string[]): DataplaneMessage => ({
    ...{ type: "ipSetDeltaUpdate", id: "s:friends", added, removed },
  });
  const before = ruleset.generation();
  await host.send(delta(["198.51.100.0/24"], []));
  expect([sets(), await reaches()]).toEqual([["cali40s-friends"], ["reached"]]);
  await host.send(delta([], ["198.51.100.0/24"]));
  expect([sets(), await reaches()]).toEqual([["cali40s-friends-hash"], ["reached"]]);
  await host.send(delta([], [`${a.v4}/32`]));
  expect([sets(), await reaches()]).toEqual([["cali40s-friends-hash"], ["silent"]]);
  expect(ruleset.generation()).toBe(before + 3);
});

test("hash sets with the names of interval sets are replaced at startup, in one transaction", async () => {
  const { host, state, sets, reaches, ruleset } = await arrange();
  await using _ = host;
  using __ = ruleset;
  host.wrapKernel = (kernel) =>
    kernel.rules.backend === "nftables"
      ? { ...kernel, rules: { ...kernel.rules, ruleset: withCommonNames(kernel.rules.ruleset) } }
      : kernel;
  host.start();
  await host.send(...state);
  await host.stop();
  expect([sets(), await reaches()]).toEqual([["cali40s-friends"], ["reached"]]);
  const before = ruleset.generation();
  host.wrapKernel = (kernel) => kernel;
  host.start();
  await host.send(...state);
  expect([sets(), await reaches()]).toEqual([["cali40s-friends-hash"], ["reached"]]);
  expect(ruleset.generation()).toBe(before + 1);
  expect(host.namespace.run("nft", ["list", "ruleset"])).not.toContain("@cali40s-friends ");
});

/** Writes hash sets without their suffix, as earlier versions did. */
function withCommonNames(ruleset: NftRuleset): NftRuleset {
  const plain = (name: string) => name.replace(/-hash$/, "");
  const renamed = (change: NftChange): NftChange => {
    if ("set" in change) return { ...change, set: plain(change.set) };
    if (change.op !== "appendRule") return change;
    const { op, table, chain, rule: body } = change;
    const expressions = body.expressions.map((each) =>
      each.kind === "lookup" && typeof each.set === "string" ? { ...each, set: plain(each.set) } : each,
    );
    return { op, table, chain, rule: { ...body, isShared: false, expressions } };
  };
  return new Proxy(ruleset, {
    get: (of, name) => {
      const value: unknown = Reflect.get(of, name);
      if (name === "commit")
        return (...[changes, options]: Parameters<NftRuleset["commit"]>) => of.commit(changes.map(renamed), options);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}
