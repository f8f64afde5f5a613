import { expect, test } from "bun:test";
import type { ProtoPolicy } from "../../calc/index.ts";
import type { RulesConfig } from "../rules/config.ts";
import { allocateMarks } from "../rules/marks.ts";
import { ChainNames, IPTABLES_CHAIN_LENGTH, NFT_CHAIN_LENGTH, limitName } from "../rules/names.ts";
import { nflogEndOfTier } from "../rules/nflog.ts";
import { policyChain, profileChain } from "../rules/policy-chains.ts";
import { renderChain } from "./render.ts";
import { ALL_FEATURES } from "./rule-text.ts";

const EVIL = 'x"\n-I FORWARD 1 -j ACCEPT\nCOMMIT\n# \\';
const config = {
  marks: allocateMarks(0xffff0000, { withWireguard: false }),
  flowLogs: true,
  logPrefix: `calico ${EVIL} %t %n`,
  deny: "drop",
} as unknown as RulesConfig;
const LISTS = ["Net", "Ports", "IpSetIds", "NamedPortIpSetIds"].flatMap((of) => [`src${of}`, `dst${of}`]);
const nothing = Object.fromEntries(
  [...LISTS, ...LISTS.map((name) => `not${name.replace(/^./, (c) => c.toUpperCase())}`), "dstIpPortSetIds"].map(
    (name) => [name, []],
  ),
);
const rules = ["log", "allow", "deny"].map((action) => ({ ...nothing, action, annotations: { [EVIL]: EVIL } }));
const policy = {
  tier: EVIL,
  inboundRules: rules,
  outboundRules: [],
  untracked: false,
  performanceHints: [],
} as unknown as ProtoPolicy;

test("each rule is one line, whatever the names of policies, tiers, profiles and annotations", () => {
  for (const names of [new ChainNames(IPTABLES_CHAIN_LENGTH), new ChainNames(NFT_CHAIN_LENGTH)]) {
    const id = { kind: "GlobalNetworkPolicy", namespace: "", name: EVIL } as const;
    const chains = [
      policyChain({ config, names, version: 4, direction: "ingress" }, id, policy),
      profileChain({ config, names, version: 4, direction: "ingress" }, EVIL, policy),
    ];
    for (const chain of chains) {
      expect(chain.name).toMatch(/^cali-[a-z]+-_[\w-]+$/);
      const texts = renderChain({ version: 4, config, tableName: "filter", features: ALL_FEATURES }, chain);
      expect(texts.length).toBeGreaterThan(2);
      for (const text of texts) {
        expect(text).toMatch(/^[\x20-\x7e]*$/);
        // Outside quotes nothing of the name is left, and every quote that opens closes.
        expect(text.replaceAll(/"[^"]*"/g, "")).not.toMatch(/["\\]|FORWARD 1|ACCEPT\b.*COMMIT/);
      }
    }
  }
});

test("a name that is not one word in rule text is hashed; other names are unchanged", () => {
  expect(limitName("cali-pi-", "gnp/a b", 28)).toMatch(/^cali-pi-_[\w-]+$/);
  expect(limitName("cali-pi-", "gnp/a b", 28)).not.toBe(limitName("cali-pi-", "gnp/a\tb", 28));
  expect(limitName("cali-pi-", "gnp/ä", 28)).toMatch(/^cali-pi-_/);
  expect(limitName("cali-pi-", "gnp/a.b:c", 28)).toBe("cali-pi-gnp/a.b:c");
  expect(nflogEndOfTier("deny", "ingress", "a b\nc")).toBe("DPI|a_b_c");
});
