import { expect, test } from "bun:test";
import type { Match, Rule } from "../rules/rule.ts";
import { plainConfig } from "../rules/testing.ts";
import { kernelRules, type RenderContext, renderRule } from "./render.ts";

const context: RenderContext = { config: plainConfig(), version: 4, tableName: "filter", setName: (set) => set };
const named = (
  side: "source" | "destination",
  count: number,
  ranges: readonly { first: number; last: number }[] = [],
): Match => ({
  ...{ kind: "ports", side, protocol: "tcp", ranges },
  sets: Array.from({ length: count }, (_, i) => `n:${side}-${i}`),
});
const decide = (...match: Match[]): Rule => ({ match, action: { kind: "decide", decision: "allow" } });
const port = { first: 80, last: 80 };

test("a rule with few alternatives has one kernel rule per combination, a rule with many has one per alternative", () => {
  const log = (count: number): Rule => ({ match: [named("destination", count)], action: { kind: "log", prefix: "x" } });
  const cases: readonly (readonly [Rule, number])[] = [
    [decide(), 1],
    [decide(named("destination", 1)), 1],
    [decide(named("destination", 1, [port])), 2],
    [decide(named("destination", 5000)), 5000],
    [decide(named("source", 7), named("destination", 7, [port])), 56],
    [decide(named("source", 1), named("destination", 70)), 70],
    [decide(named("source", 50), named("destination", 49, [port])), 102],
    [log(8), 8],
    [log(50), 52],
  ];
  for (const [rule, count] of cases) {
    const rendered = renderRule(context, rule, "mark");
    expect([kernelRules(rule), rendered.length]).toEqual([count, count]);
    // Each lookup of a set is encoded: logging rules must not exclude all earlier alternatives in each of many.
    const lookups = rendered.flatMap(({ expressions }) => expressions).filter(({ kind }) => kind === "lookup");
    expect(lookups.length).toBeLessThan(6000);
  }
});
