import { expect, test } from "bun:test";
import fc from "fast-check";
import { compileSelector, type Labels, parseSelector } from "../../model/index.ts";
import { LabelIndex, LabelItem, SelectorEntry } from "./index.ts";

class Named extends LabelItem {
  constructor(readonly name: string) {
    super();
  }
}

/** The index beside a naive one that tries everything on everything. */
class Bench {
  readonly matches = new Set<string>();
  readonly items = new Map<string, { item: Named; labels: Labels; profiles: readonly string[] }>();
  readonly profiles = new Map<string, Labels>();
  readonly selectors = new Map<string, SelectorEntry>();
  readonly index = new LabelIndex<Named, SelectorEntry>({
    onMatchStarted: (selector, item) => {
      const match = `${selector.text} <- ${item.name}`;
      if (this.matches.has(match)) throw new Error(`${match} started twice`);
      this.matches.add(match);
    },
    onMatchStopped: (selector, item) => {
      const match = `${selector.text} <- ${item.name}`;
      if (!this.matches.delete(match)) throw new Error(`${match} stopped without having started`);
    },
  });

  setItem(name: string, labels: Labels, profiles: readonly string[] = []): void {
    const item = this.items.get(name)?.item ?? new Named(name);
    this.items.set(name, { item, labels, profiles });
    this.index.setItem(item, labels, profiles);
  }
  deleteItem(name: string): void {
    const known = this.items.get(name);
    if (known === undefined) return;
    this.items.delete(name);
    this.index.deleteItem(known.item);
  }
  setProfile(name: string, labels: Labels | undefined): void {
    if (labels === undefined) this.profiles.delete(name);
    else this.profiles.set(name, labels);
    this.index.setParentLabels(name, labels);
  }
  setSelector(text: string, wanted: boolean): void {
    const known = this.selectors.get(text);
    if (wanted === (known !== undefined)) return;
    if (known !== undefined) {
      this.selectors.delete(text);
      this.index.removeSelector(known);
    } else {
      const selector = new SelectorEntry(text);
      this.selectors.set(text, selector);
      this.index.addSelector(selector);
    }
  }
  expected(): string[] {
    const all: string[] = [];
    for (const text of this.selectors.keys()) {
      const matcher = compileSelector(parseSelector(text));
      for (const [name, { labels, profiles }] of this.items) {
        const effective = new Map(Object.entries(labels));
        for (const profile of profiles)
          for (const [label, value] of Object.entries(this.profiles.get(profile) ?? {}))
            if (!effective.has(label)) effective.set(label, value);
        if (matcher(effective)) all.push(`${text} <- ${name}`);
      }
    }
    return all.sort();
  }
}

const arbLabels = fc.dictionary(fc.constantFrom("a", "b", "c"), fc.constantFrom("1", "2", "3"), { maxKeys: 3 });
const SELECTORS = [
  "all()",
  "has(a)",
  "!has(a)",
  "a == '1'",
  "a != '1'",
  "a in {'1','2'}",
  "a not in {'1','2'}",
  "a == '1' && b == '2'",
  "a == '1' || b == '2'",
  "(a == '1' || a == '2') && has(c)",
  "a == '1' && !has(a)",
  "has(a) && has(b)",
  "c starts with '2'",
  "a in {}",
];
const arbStep = fc.oneof(
  fc.record({
    do: fc.constant("item" as const),
    name: fc.constantFrom("x", "y", "z", "u", "v"),
    labels: arbLabels,
    profiles: fc.uniqueArray(fc.constantFrom("p", "q", "r"), { maxLength: 3 }),
  }),
  fc.record({ do: fc.constant("drop" as const), name: fc.constantFrom("x", "y", "z", "u", "v") }),
  fc.record({
    do: fc.constant("profile" as const),
    name: fc.constantFrom("p", "q", "r"),
    labels: fc.option(arbLabels, { nil: undefined }),
  }),
  fc.record({ do: fc.constant("selector" as const), text: fc.constantFrom(...SELECTORS), wanted: fc.boolean() }),
);

test("FC-046 FC-052 the index matches what trying every selector on every item matches", () =>
  fc.assert(
    fc.property(fc.array(arbStep, { minLength: 10, maxLength: 60 }), (steps) => {
      const bench = new Bench();
      for (const step of steps) {
        if (step.do === "item") bench.setItem(step.name, step.labels, step.profiles);
        else if (step.do === "drop") bench.deleteItem(step.name);
        else if (step.do === "profile") bench.setProfile(step.name, step.labels);
        else bench.setSelector(step.text, step.wanted);
        expect([...bench.matches].sort()).toEqual(bench.expected());
      }
    }),
    { numRuns: 300 },
  ));

test("FC-046 an own label wins, then the first profile that has it", () => {
  const bench = new Bench();
  bench.setProfile("p", { a: "1", b: "1" });
  bench.setProfile("q", { a: "2", c: "2" });
  bench.setItem("x", { b: "own" }, ["q", "p"]);
  for (const text of ["a == '1'", "a == '2'", "b == 'own'", "b == '1'", "c == '2'"]) bench.setSelector(text, true);
  expect([...bench.matches].sort()).toEqual(["a == '2' <- x", "b == 'own' <- x", "c == '2' <- x"]);
  bench.setItem("x", { b: "own" }, ["p", "q"]);
  expect(bench.matches.has("a == '1' <- x")).toBe(true);
});

test("FC-052 a new selector looks only at items that have a label it demands", () => {
  const bench = new Bench();
  for (let i = 0; i < 1000; i++)
    bench.setItem(`i${i}`, { app: `app${i % 100}`, tier: i % 2 === 0 ? "web" : "db", pod: `i${i}` });
  const before = bench.index.stats.evaluations.matched + bench.index.stats.evaluations.unmatched;
  bench.setSelector("app == 'app7' && tier == 'db'", true);
  const looked = bench.index.stats.evaluations.matched + bench.index.stats.evaluations.unmatched - before;
  expect(looked).toBe(10);
  expect(bench.matches.size).toBe(10);
  bench.setSelector("has(nowhere)", true);
  expect(bench.index.stats.evaluations.matched + bench.index.stats.evaluations.unmatched - before).toBe(10);
  bench.setSelector("!has(app)", true);
  expect(bench.index.stats.strategies["all-items"]).toBe(1);
});

test("FC-052 a changed item looks only at selectors filed under labels it has", () => {
  const bench = new Bench();
  for (let i = 0; i < 1000; i++) bench.setSelector(`app == 'app${i}'`, true);
  bench.setItem("x", { app: "app5" });
  expect(bench.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});

test("items with equal labels and profiles are looked at once", () => {
  const bench = new Bench();
  bench.setProfile("p", { a: "1" });
  for (let i = 0; i < 100; i++) bench.setItem(`i${i}`, { app: "web" }, ["p"]);
  bench.setSelector("app == 'web' && a == '1'", true);
  expect(bench.matches.size).toBe(100);
  expect(bench.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});

test("labels that nobody bears any more are forgotten", () => {
  const bench = new Bench();
  for (let round = 0; round < 1000; round++) {
    bench.setItem("x", { unique: `value-${round}` }, [`profile-${round}`]);
    bench.setProfile(`profile-${round}`, { unique: `inherited-${round}` });
    bench.setProfile(`profile-${round}`, undefined);
  }
  bench.setSelector("has(unique)", true);
  expect(bench.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});
