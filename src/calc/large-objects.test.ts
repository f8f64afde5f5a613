// The work for one object grows no faster than n log n in what its author chooses: labels, selectors, terms, named ports.
// The sizes are those of the largest objects that an API server stores. n log n takes less than half a second for each of
// them, n² at least ten: the limit in between leaves room for a busy machine.
import { expect, test } from "bun:test";
import { type Labels, parseSelector, writeSelector } from "../model/index.ts";
import { namedPortSets } from "./ipsets/ip-set.ts";
import { MemberIndex } from "./ipsets/member-index.ts";
import { policy, rule, wep } from "./testing/build.ts";
import { GraphBench } from "./testing/run.ts";
import { LabelIndex, LabelItem, SelectorEntry } from "./labels/index.ts";

const N = 60_000;
const NESTED = 60_000;
const LIMIT_MS = 4000;

function measure<T>(size: number, prepare: (size: number) => T, work: (prepared: T) => void): number {
  const prepared = prepare(size);
  const startMs = performance.now();
  work(prepared);
  return performance.now() - startMs;
}

const ids = (n: number): string[] => Array.from({ length: n }, (_, i) => `l${i}`);
const labelsOf = (names: readonly string[]): Labels => Object.fromEntries(names.map((name) => [name, ""]));
const index = () => new LabelIndex<LabelItem, SelectorEntry>({ onMatchStarted: () => {}, onMatchStopped: () => {} });

test("an item with many labels, in the opposite order of an earlier one", () => {
  const tookMs = measure(
    N,
    (n) => ({ labels: index(), first: labelsOf(ids(n)), second: labelsOf(ids(n).reverse()) }),
    ({ labels, first, second }) => {
      labels.setItem(new LabelItem(), first, []);
      labels.setItem(new LabelItem(), second, []);
    },
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

test("a profile with many labels", () => {
  const tookMs = measure(
    150_000,
    (n) => ({ labels: index(), first: labelsOf(ids(n)), second: labelsOf(ids(n + 1).slice(1)) }),
    ({ labels, first, second }) => {
      labels.setItem(new LabelItem(), {}, ["p"]);
      labels.setParentLabels("p", first);
      labels.setParentLabels("p", second);
    },
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

test("a selector with as many terms as an item has labels", () => {
  const tookMs = measure(
    N,
    (n) => {
      const labels = index();
      labels.setItem(new LabelItem(), labelsOf(ids(n)), []);
      return {
        labels,
        selector: new SelectorEntry(
          ids(n)
            .map((name) => `has(${name})`)
            .join(" && "),
        ),
      };
    },
    ({ labels, selector }) => labels.addSelector(selector),
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

test("many selectors that all match one item, added and removed", () => {
  const tookMs = measure(
    N,
    (n) => {
      const labels = index();
      labels.setItem(new LabelItem(), { app: "web" }, []);
      return { labels, selectors: ids(n).map((name) => new SelectorEntry(`!has(${name})`)) };
    },
    ({ labels, selectors }) => {
      for (const selector of selectors) labels.addSelector(selector);
      for (const selector of selectors) labels.removeSelector(selector);
    },
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

test("many named ports in rules, and as many on an endpoint", () => {
  const tookMs = measure(
    N,
    (n) => {
      const ports = ids(n).map((name, i) => ({ name, protocol: "tcp", port: 1 + i }));
      const members = new MemberIndex(
        { onMemberAdded: () => {}, onMemberRemoved: () => {} },
        { withoutOverlaps: false },
      );
      return { members, ports, sets: ids(n).map(namedPortSets(parseSelector("all()"), "tcp")) };
    },
    ({ members, ports, sets }) => {
      const item = { labels: {}, profileIds: [], nets: [], ports };
      members.setItem("early", item);
      for (const set of sets) members.addSet(set as Parameters<typeof members.addSet>[0]);
      members.setItem("late", item);
      members.setItem("late", { ...item, ports: ports.slice(1) });
      for (const { id } of sets) members.removeSet(id);
    },
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

test("named ports beside a long selector: the selector is printed once", () => {
  const tookMs = measure(
    N,
    (n) => ({ selector: parseSelector(`app in {${ids(n).map((id) => `'${id}'`)}}`), names: ids(n) }),
    ({ selector, names }) => void names.map(namedPortSets(selector, "tcp")),
  );
  expect(tookMs).toBeLessThan(LIMIT_MS);
}, 60_000);

const NESTS: Readonly<Record<string, (depth: number) => string>> = {
  "'and' of different labels": (depth) => nest(depth, (i) => `has(l${i}) && (`, "has(x)"),
  "'or' of one label's values": (depth) => nest(depth, (i) => `l == '${i}' || (`, "l == 'x'"),
  negations: (depth) => nest(depth, () => "!(", "has(x)"),
};
const nest = (depth: number, open: (i: number) => string, inner: string): string =>
  `${Array.from({ length: depth }, (_, i) => open(i)).join("")}${inner}${")".repeat(depth)}`;

for (const [name, build] of Object.entries(NESTS))
  test(`deeply nested selectors: ${name}`, () => {
    const tookMs = measure(NESTED, build, (text) => void new SelectorEntry(writeSelector(parseSelector(text))));
    expect(tookMs).toBeLessThan(LIMIT_MS);
  }, 60_000);

test("a policy that needs more than 1,000 IP sets denies everything until it needs fewer", () => {
  const refused: string[] = [];
  const bench = new GraphBench({ ambientMesh: false }, { onPolicyTooLarge: ({ name }) => refused.push(name) });
  const selectors = (count: number) => ids(count).map((id) => rule({ from: { selector: `has(${id})` } }));
  const give = (count: number) => {
    bench.give(wep("a"), policy("p", { inboundRules: selectors(count) })).flush();
    const { objects, sets } = bench.dataplane;
    const message = objects.values().find(({ type }) => type === "activePolicyUpdate");
    return { ...(message?.type === "activePolicyUpdate" ? message.policy : {}), sets: sets.size };
  };
  bench.inSync();
  expect(give(1000)).toMatchObject({ sets: 1000 });
  expect(refused).toEqual([]);
  const large = give(1001);
  expect(refused).toEqual(["p"]);
  expect(large).toMatchObject({ inboundRules: [{ action: "deny", srcIpSetIds: [], srcNet: [] }], outboundRules: [] });
  expect(large.sets).toBe(0);
  expect(give(999)).toMatchObject({ sets: 999 });
});
