import { expect, test } from "bun:test";
import type { DumpedTable } from "../../kernel/index.ts";
import { RulesetWatch } from "./ruleset-watch.ts";

test("a missing or dormant table is reported once per change of the ruleset; tables of other programs are ignored", () => {
  let generation = 1;
  let reads = 0;
  const table = (name: string, isDormant = false): DumpedTable => ({ family: "ip", name, handle: 1n, isDormant });
  let tables = [table("calico"), table("theirs")];
  let losses = 0;
  const watch = new RulesetWatch({
    ruleset: { generation: () => generation, tables: () => (reads++, tables), rules: () => [] },
    tables: [{ family: "ip", name: "calico" }],
    hooks: [],
    onLoss: () => losses++,
  });
  const after = (change: () => void) => {
    change();
    generation++;
    watch.check();
    watch.check(); // the generation is unchanged
    return [losses, reads];
  };
  expect(after(() => {})).toEqual([0, 1]);
  expect(after(() => (tables = [table("calico")]))).toEqual([0, 2]);
  expect(after(() => (tables = [table("calico", true)]))).toEqual([1, 3]);
  expect(after(() => (tables = []))).toEqual([2, 4]);
  expect(after(() => (tables = [table("calico")]))).toEqual([2, 5]);
});

test("a base chain without a jump to a chain of calico-ts is reported, even if it has other rules", () => {
  let generation = 1;
  let targets: string[][] = [];
  const table = { family: "ip", name: "filter" } as const;
  let losses = 0;
  const watch = new RulesetWatch({
    ruleset: {
      generation: () => generation++,
      tables: () => [{ ...table, handle: 1n, isDormant: false }],
      rules: () => targets.map((each) => ({ chain: "FORWARD", handle: 1n, targets: each })),
    },
    tables: [table],
    hooks: [{ table, chain: "FORWARD" }],
    onLoss: () => losses++,
  });
  const after = (...rules: string[][]) => {
    targets = rules;
    watch.check();
    return losses;
  };
  expect(after(["KUBE-FORWARD"], ["cali-FORWARD"])).toBe(0);
  expect(after(["filter-cali-FORWARD"])).toBe(0);
  expect(after(["KUBE-FORWARD"], [])).toBe(1);
  expect(after()).toBe(2);
});

test("the ruleset is checked only if another program may have written", () => {
  let generation = 1;
  let known = 1;
  let reads = 0;
  const watch = new RulesetWatch({
    ruleset: { generation: () => generation, tables: () => (reads++, []), rules: () => [] },
    tables: [],
    hooks: [],
    isKnown: (now) => now === known,
    onLoss: () => {},
  });
  watch.check();
  generation = known = 2;
  watch.check();
  expect(reads).toBe(0);
  generation = 3;
  watch.check();
  watch.check();
  expect(reads).toBe(1);
});
