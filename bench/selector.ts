// Measures parsing and matching of selectors: 1k selectors of 1–5 terms, 10k endpoints with 6 labels. The reference for
// compiled selectors is a walk of the syntax tree, as in Calico.
// Run: bun bench/selector.ts
import { compileSelector, labelRestrictions, parseSelector, printSelector, uniqueId } from "../src/model/index.ts";
import { interpretSelector } from "../src/model/testing/interpret-selector.ts";
import { median } from "./support/percentile.ts";

const SELECTORS = 1000;
const ENDPOINTS = 10_000;
const ROUNDS = 5;

const texts = Array.from({ length: SELECTORS }, (_, i) => {
  const terms = [
    `app == "app-${i % 97}"`,
    `projectcalico.org/namespace == 'ns-${i % 50}'`,
    `tier in {'web', 'db', "cache-${i % 7}"}`,
    "!has(quarantine)",
    `version starts with "v${i % 3}"`,
  ];
  return terms.slice(0, 1 + (i % 5)).join(i % 11 === 0 ? " || " : " && ");
});
const endpoints = Array.from(
  { length: ENDPOINTS },
  (_, i) =>
    new Map([
      ["app", `app-${i % 97}`],
      ["projectcalico.org/namespace", `ns-${i % 50}`],
      ["projectcalico.org/orchestrator", "k8s"],
      ["tier", ["web", "db", "batch"][i % 3]!],
      ["version", `v${i % 4}.1`],
      ["pod", `pod-${i}`],
    ]),
);

function rate(name: string, count: number, work: () => void): number {
  work(); // warm up
  const times = Array.from({ length: ROUNDS }, () => {
    const start = performance.now();
    work();
    return performance.now() - start;
  });
  const ms = median(times);
  console.log(`${name.padEnd(44)} ${Math.round((count / ms) * 1000).toLocaleString("en")}/s  (${ms.toFixed(1)} ms)`);
  return ms;
}

const selectors = texts.map(parseSelector);
const matchers = selectors.map(compileSelector);
let matched = 0;
rate(`parse, ${SELECTORS} selectors × 20`, SELECTORS * 20, () => {
  for (let i = 0; i < 20; i++) for (const text of texts) parseSelector(text);
});
rate(`print and hash, ${SELECTORS} selectors × 20`, SELECTORS * 20, () => {
  for (let i = 0; i < 20; i++) for (const selector of selectors) uniqueId("s", printSelector(selector));
});
rate(`compile, ${SELECTORS} selectors × 20`, SELECTORS * 20, () => {
  for (let i = 0; i < 20; i++) for (const selector of selectors) compileSelector(selector);
});
rate(`restrictions, ${SELECTORS} selectors × 20`, SELECTORS * 20, () => {
  for (let i = 0; i < 20; i++) for (const selector of selectors) labelRestrictions(selector);
});
const compiled = rate(`match, ${SELECTORS} selectors × ${ENDPOINTS} endpoints`, SELECTORS * ENDPOINTS, () => {
  for (const matches of matchers) for (const labels of endpoints) if (matches(labels)) matched++;
});
if (matched === 0) throw new Error("no selector matched, so the benchmark measures nothing");
const walked = rate("the same by walking the tree (reference)", SELECTORS * ENDPOINTS, () => {
  for (const selector of selectors) for (const labels of endpoints) if (interpretSelector(selector, labels)) matched--;
});
console.log(`ratio of walking to compiled                 ${(walked / compiled).toFixed(1)}`);
if (matched !== 0) throw new Error("the compiled selectors and the walk disagree");
const nested = `${"(has(a) && !".repeat(10_000)}has(b)${")".repeat(10_000)}`;
rate("parse one of 10k nested terms", 1, () => parseSelector(nested));
