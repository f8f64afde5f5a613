import { expect, test } from "bun:test";
import { plainConfig } from "../rules/testing.ts";
import { chain, type Rule } from "../rules/rule.ts";
import { detectFeatures } from "./detect.ts";
import { restoreText, type WrittenChain } from "./restore-text.ts";
import { ruleHashes } from "./rule-hash.ts";
import { RenderedChains } from "./rendered-chains.ts";

const written = (texts: readonly string[]): WrittenChain => ({
  ...{ name: "cali-pi-p", texts, hashes: ruleHashes("cali-pi-p", texts) },
});
const rules = (count: number, first: string) =>
  written([first, ...Array.from({ length: count - 1 }, (_, i) => `--source 10.0.${i >> 8}.${i & 255}/32`)]);

test("a chain is rewritten if many of its rules change, because replacing single rules would be slow", () => {
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

test("a chain is rendered only for a table that uses it", () => {
  let named = 0;
  const setName = (id: string) => (named++, id);
  const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
  const context = { config: plainConfig(), version: 4, tableName: "filter", features, setName } as const;
  const chains = new RenderedChains({ tableName: "filter", context, onChange: () => {}, onHook: () => {} });
  const usesSet: Rule = { match: [{ kind: "ipSet", side: "source", set: "s:x" }], action: { kind: "accept" } };
  chains.set(chain("cali-pi-p", [usesSet]));
  chains.set(chain("cali-pi-p", [usesSet, usesSet]));
  expect([named, [...chains.needed()]]).toEqual([0, []]);
  chains.setHook("FORWARD", "insert", [{ action: { kind: "jump", chain: "cali-pi-p" } }]);
  const [needed] = chains.needed();
  expect([needed?.texts.length, needed?.hashes.length, named]).toEqual([2, 2, 2]);
});
