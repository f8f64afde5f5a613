// Rules are recognised by a hash of what they say, which includes annotations: text that users choose. Rules that say
// different things stay different, whatever somebody writes into their annotations.
import { describe, expect, test } from "bun:test";
import { collidingTexts } from "./wyhash-collision.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const ruleText = (decision: "allow" | "deny"): string =>
  `2 {"match":[],"action":{"kind":"decide","decision":"${decision}"},"annotations":["note=`;
const TEXTS = collidingTexts(ruleText("allow"), ruleText("deny"), 'as agreed with the network team"]}');
const [ALLOW_NOTE = "", DENY_NOTE = ""] = TEXTS.map((text) => {
  const { annotations } = JSON.parse(text.slice(2)) as { readonly annotations: readonly string[] };
  return annotations[0]?.slice("note=".length);
});

test("the annotations make both rules one under a 64-bit Wyhash", () => {
  expect(TEXTS[0]).not.toBe(TEXTS[1]);
  expect(Bun.hash(TEXTS[0])).toBe(Bun.hash(TEXTS[1]));
});

/** The rule in question is the second: the first carries a comment with the policy's name. */
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
  });
