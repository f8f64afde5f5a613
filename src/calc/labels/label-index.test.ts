import { expect, test } from "bun:test";
import fc from "fast-check";
import { compileSelector, type Labels, ParsedSelector, parseSelector } from "../../model/index.ts";
import { LabelIndex, LabelItem, SelectorEntry } from "./index.ts";

class NamedItem extends LabelItem {
  constructor(readonly name: string) {
    super();
  }
}

/** The index together with a simple implementation that evaluates every selector for every item. */
class Harness {
  readonly matches = new Set<string>();
  readonly items = new Map<string, { item: NamedItem; labels: Labels; profiles: readonly string[] }>();
  readonly profiles = new Map<string, Labels>();
  readonly selectors = new Map<string, SelectorEntry>();
  readonly index: LabelIndex<NamedItem, SelectorEntry>;

  constructor(stepWork?: number) {
    this.index = new LabelIndex<NamedItem, SelectorEntry>(this.#listener, stepWork);
  }

  readonly #listener = {
    onMatchStarted: (selector: SelectorEntry, item: NamedItem) => {
      const match = `${selector.selector.text} <- ${item.name}`;
      if (this.matches.has(match)) throw new Error(`${match} started twice`);
      this.matches.add(match);
    },
    onMatchStopped: (selector: SelectorEntry, item: NamedItem) => {
      const match = `${selector.selector.text} <- ${item.name}`;
      if (!this.matches.delete(match)) throw new Error(`${match} stopped without having started`);
    },
  };

  setItem(name: string, labels: Labels, profiles: readonly string[] = []): void {
    const item = this.items.get(name)?.item ?? new NamedItem(name);
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
  /** Selectors whose matches are being started. */
  readonly adding: Iterator<void>[] = [];
  /** Does the work that is left. */
  settle(): void {
    while (this.adding[0] !== undefined) if (this.adding[0].next().done === true) this.adding.shift();
    while (this.index.reevaluateNext());
  }
  setSelector(input: string, exists: boolean, mode: "at once" | "in steps" = "at once"): void {
    const parsed = ParsedSelector.parse(input);
    const { text } = parsed;
    const known = this.selectors.get(text);
    if (exists === (known !== undefined)) return;
    if (known !== undefined) {
      this.selectors.delete(text);
      this.index.removeSelector(known);
    } else {
      const selector = new SelectorEntry(parsed);
      this.selectors.set(text, selector);
      if (mode === "at once") this.index.addSelector(selector);
      else this.adding.push(this.index.addSelectorInSteps(selector));
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
  fc.record({ do: fc.constant("selector" as const), text: fc.constantFrom(...SELECTORS), exists: fc.boolean() }),
);

test("FC-046 FC-052 the index finds the same matches as evaluating every selector for every item", () =>
  fc.assert(
    fc.property(fc.array(arbStep, { minLength: 10, maxLength: 60 }), (steps) => {
      const harness = new Harness();
      for (const step of steps) {
        if (step.do === "item") harness.setItem(step.name, step.labels, step.profiles);
        else if (step.do === "drop") harness.deleteItem(step.name);
        else if (step.do === "profile") harness.setProfile(step.name, step.labels);
        else harness.setSelector(step.text, step.exists);
        harness.settle();
        expect([...harness.matches].sort()).toEqual(harness.expected());
      }
    }),
    { numRuns: 300 },
  ));

test("any change may be made while selectors are added and profiles evaluated in steps", () =>
  fc.assert(
    fc.property(
      fc.array(fc.record({ change: arbStep, after: fc.constantFrom("nothing", "one step", "settle") }), {
        minLength: 10,
        maxLength: 60,
      }),
      (steps) => {
        const harness = new Harness(1); // each class is a step
        for (const { change, after } of steps) {
          if (change.do === "item") harness.setItem(change.name, change.labels, change.profiles);
          else if (change.do === "drop") harness.deleteItem(change.name);
          else if (change.do === "profile") harness.setProfile(change.name, change.labels);
          else harness.setSelector(change.text, change.exists, "in steps");
          if (after === "settle") harness.settle();
          else if (after === "one step") {
            harness.adding[0]?.next();
            harness.index.reevaluateNext();
          }
          const reported = harness.selectors
            .values()
            .flatMap((selector) =>
              harness.index.matchesOf(selector).map(({ name }) => `${selector.selector.text} <- ${name}`),
            );
          for (const match of reported) expect(harness.matches.has(match)).toBe(true);
        }
        harness.settle();
        expect([...harness.matches].sort()).toEqual(harness.expected());
      },
    ),
    { numRuns: 500 },
  ));

test("a selector that is removed before its first step matches nothing", () => {
  const harness = new Harness(1);
  harness.setItem("x", {});
  harness.setSelector("all()", true, "in steps");
  harness.setSelector("all()", false);
  harness.settle();
  expect([...harness.matches]).toEqual([]);
});

test("FC-046 an item's own label has precedence, then the first profile that has the label", () => {
  const harness = new Harness();
  harness.setProfile("p", { a: "1", b: "1" });
  harness.setProfile("q", { a: "2", c: "2" });
  harness.setItem("x", { b: "own" }, ["q", "p"]);
  for (const text of ["a == '1'", "a == '2'", "b == 'own'", "b == '1'", "c == '2'"]) harness.setSelector(text, true);
  expect([...harness.matches].sort()).toEqual(['a == "2" <- x', 'b == "own" <- x', 'c == "2" <- x']);
  harness.setItem("x", { b: "own" }, ["p", "q"]);
  expect(harness.matches.has('a == "1" <- x')).toBe(true);
});

test("FC-052 a new selector is evaluated only for items that have a label it requires", () => {
  const harness = new Harness();
  for (let i = 0; i < 1000; i++)
    harness.setItem(`i${i}`, { app: `app${i % 100}`, tier: i % 2 === 0 ? "web" : "db", pod: `i${i}` });
  const before = harness.index.stats.evaluations.matched + harness.index.stats.evaluations.unmatched;
  harness.setSelector("app == 'app7' && tier == 'db'", true);
  const evaluations = harness.index.stats.evaluations.matched + harness.index.stats.evaluations.unmatched - before;
  expect(evaluations).toBe(10);
  expect(harness.matches.size).toBe(10);
  harness.setSelector("has(nowhere)", true);
  expect(harness.index.stats.evaluations.matched + harness.index.stats.evaluations.unmatched - before).toBe(10);
  harness.setSelector("!has(app)", true);
  expect(harness.index.stats.strategies["all-items"]).toBe(1);
});

test("FC-052 for a changed item, only selectors indexed under its labels are evaluated", () => {
  const harness = new Harness();
  for (let i = 0; i < 1000; i++) harness.setSelector(`app == 'app${i}'`, true);
  harness.setItem("x", { app: "app5" });
  expect(harness.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});

test("a selector is evaluated once for items with equal labels and profiles", () => {
  const harness = new Harness();
  harness.setProfile("p", { a: "1" });
  for (let i = 0; i < 100; i++) harness.setItem(`i${i}`, { app: "web" }, ["p"]);
  harness.setSelector("app == 'web' && a == '1'", true);
  expect(harness.matches.size).toBe(100);
  expect(harness.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});

test("deletes labels that no item has", () => {
  const harness = new Harness();
  for (let round = 0; round < 1000; round++) {
    harness.setItem("x", { unique: `value-${round}` }, [`profile-${round}`]);
    harness.setProfile(`profile-${round}`, { unique: `inherited-${round}` });
    harness.setProfile(`profile-${round}`, undefined);
    harness.settle();
  }
  harness.setSelector("has(unique)", true);
  expect(harness.index.stats.evaluations).toEqual({ matched: 1, unmatched: 0 });
});
