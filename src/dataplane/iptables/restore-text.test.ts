import { expect, test } from "bun:test";
import { plainConfig } from "../rules/testing.ts";
import { chain, type Rule } from "../rules/rule.ts";
import { detectFeatures } from "./detect.ts";
import { restoreText, type WrittenChain } from "./restore-text.ts";
import { ruleHashes } from "./rule-hash.ts";
import { WantedChains } from "./wanted-chains.ts";

const written = (texts: readonly string[]): WrittenChain => ({
  ...{ name: "cali-pi-p", texts, hashes: ruleHashes("cali-pi-p", texts), targets: new Set() },
});
const rules = (count: number, first: string) =>
  written([first, ...Array.from({ length: count - 1 }, (_, i) => `--source 10.0.${i >> 8}.${i & 255}/32`)]);

test("a chain of which many rules change is rewritten: each replaced rule is searched from the start of the chain", () => {
  const textFor = (count: number) => {
    const change = [
      { chain: rules(count, "--source 10.9.0.1/32"), actual: rules(count, "--source 10.9.0.2/32").hashes },
    ];
    const [text = "", ...more] = restoreText("filter", { create: [], change, delete: [], hooks: [] }, "legacy");
    expect(more).toEqual([]);
    return text.split("\n");
  };
  const few = textFor(1000);
  expect(few.filter((line) => line.startsWith("-R cali-pi-p "))).toHaveLength(1000);
  const many = textFor(1001);
  expect(many.slice(0, 2)).toEqual(["*filter", ":cali-pi-p - -"]);
  expect(many.filter((line) => line.startsWith("-A cali-pi-p "))).toHaveLength(1001);
  expect(many).toHaveLength(1001 + 4);
});

test("a chain is lowered only for a table that uses it", () => {
  let named = 0;
  const setName = (id: string) => (named++, id);
  const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
  const context = { config: plainConfig(), version: 4, layer: "filter", features, setName } as const;
  const wanted = new WantedChains({ layer: "filter", context, onChange: () => {}, onHook: () => {} });
  const usesSet: Rule = { match: [{ kind: "ipSet", side: "source", set: "s:x" }], action: { kind: "accept" } };
  wanted.set(chain("cali-pi-p", [usesSet]));
  wanted.set(chain("cali-pi-p", [usesSet, usesSet]));
  expect([named, [...wanted.needed()]]).toEqual([0, []]);
  wanted.setHook("FORWARD", "insert", [{ action: { kind: "jump", chain: "cali-pi-p" } }]);
  const [needed] = wanted.needed();
  expect([needed?.texts.length, needed?.hashes.length, named]).toEqual([2, 2, 2]);
});
