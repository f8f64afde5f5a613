// Tests that different rules are always recognized as different. Rules are identified by a hash of their contents, which
// include annotations, so users could try to create collisions.
import { describe, expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, policyId, rule, tier } from "./host.ts";
import { collidingTexts } from "./wyhash-collision.ts";

const ruleText = (decision: "allow" | "deny"): string =>
  `2 {"match":[],"action":{"kind":"decide","decision":"${decision}"},"annotations":["note=`;
const TEXTS = collidingTexts(ruleText("allow"), ruleText("deny"), 'as agreed with the network team"]}');
const [ALLOW_NOTE = "", DENY_NOTE = ""] = TEXTS.map((text) => {
  const { annotations } = JSON.parse(text.slice(2)) as { readonly annotations: readonly string[] };
  return annotations[0]?.slice("note=".length);
});

test("the annotations give both rules the same 64-bit Wyhash", () => {
  expect(TEXTS[0]).not.toBe(TEXTS[1]);
  expect(Bun.hash(TEXTS[0])).toBe(Bun.hash(TEXTS[1]));
});

/** The tested rule is the second: the first has a comment with the name of the policy. */
const withNote = (action: "allow" | "deny", note: string) => [
  rule({ action: "deny", protocol: { name: "sctp" } }),
  rule({ action, annotations: { note } }),
];

for (const backend of BACKENDS)
  describe(backend, () => {
    test("an Allow rule and a Deny rule with colliding annotations keep their verdicts", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
      for (const pod of [b, c]) host.prober.listen(pod.target, "tcp", 80);
      host.start();
      // One transaction, in which the Allow rule is encoded first.
      await host.send(
        allowProfile,
        policy("aaa-allow", withNote("allow", ALLOW_NOTE)),
        policy("zzz-deny", withNote("deny", DENY_NOTE)),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["zzz-deny", "aaa-allow"])] }),
        host.endpoint(c, { tiers: [tier(["aaa-allow", "zzz-deny"])] }),
        inSync,
      );
      const probes = [b, c].flatMap((to) => [to.v4, to.v6].map((address) => ({ from: a.target, to: address })));
      expect(await host.probe(probes)).toEqual(["silent", "silent", "reached", "reached"]);
    });

    test("a policy whose set has the same kernel name as another set denies everything, and the other is not affected", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b, c, d] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4), host.addPod("d", 5)];
      for (const pod of [b, c, d]) host.prober.listen(pod.target, "tcp", 80);
      // The kernel name contains 15 characters of the hash after this prefix.
      const [first, second] = ["svcnoport:AAAAAAAAAAAAAAA1", "svcnoport:AAAAAAAAAAAAAAA2"];
      const members = (pod: typeof a) => [`${pod.v4}/32`, `${pod.v6}/128`];
      const set = (id: string, pod: typeof a): DataplaneMessage => ({
        ...{ type: "ipSetUpdate", id, setType: "net", members: members(pod) },
      });
      host.start();
      await host.send(
        allowProfile,
        set(first, a),
        policy("first", [rule({ srcIpSetIds: [first] })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["first"])] }),
        inSync,
      );
      await host.send(
        set(second, d),
        policy("allows", [rule({ srcIpSetIds: [second] })]),
        policy("denies", [rule({ action: "deny", srcIpSetIds: [second] }), rule()]),
        host.endpoint(c, { tiers: [tier(["allows"])] }),
        host.endpoint(d, { tiers: [tier(["denies"])] }),
      );
      const from = (source: typeof a, ...to: readonly (typeof a)[]) =>
        to.flatMap((pod) => [pod.v4, pod.v6].map((address) => ({ from: source.target, to: address })));
      const open = ["reached", "reached"] as const;
      const closed = ["silent", "silent"] as const;
      expect(await host.probe(from(a, b, c, d))).toEqual([...open, ...closed, ...closed]);
      expect(await host.probe(from(d, b, c))).toEqual([...closed, ...closed]);
      expect(host.lines.filter((line) => line.includes("two names have the same hash"))).not.toEqual([]);
      // Removing the second set does not affect the first.
      await host.send(
        host.endpoint(c),
        host.endpoint(d),
        ...["allows", "denies"].map((name): DataplaneMessage => ({ type: "activePolicyRemove", id: policyId(name) })),
        { type: "ipSetRemove", id: second },
      );
      expect(await host.probe([...from(a, b, c), ...from(d, b)])).toEqual([...open, ...open, ...closed]);
    });
  });
