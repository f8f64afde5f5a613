// Path-independence: whatever the way to a state, the dataplane ends up knowing what it would know had that state been
// all there ever was. The mock dataplane checks the protocol's promises at every message.
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { GraphSettings, GraphUpdate } from "./graph.ts";
import { type DatastoreState, FLUSH_MODES, type FlushMode, fromScratch, GraphBench } from "./testing/run.ts";
import { NAMED_STATES, type NamedState } from "./testing/states.ts";
import { summarize } from "./testing/summary.ts";

for (const { name, state, want, settings } of NAMED_STATES)
  test(`FC-084 FC-106 FC-108 state: ${name}`, () => {
    const bench = new GraphBench(settings);
    bench.give(...state);
    bench.inSync();
    expect(summarize(bench.dataplane, Object.keys(want.sets ?? {}))).toEqual({
      sets: {},
      policies: [],
      profiles: [],
      endpoints: {},
      routes: {},
      vteps: {},
      ...want,
      others: (want.others ?? []).toSorted(),
    });
  });

/** States that can follow one another in one process. */
const groups: readonly (readonly NamedState[])[] = [
  NAMED_STATES.filter(({ settings }) => settings?.routes === "none"),
  NAMED_STATES.filter(({ settings }) => settings === undefined),
];
const nothing: NamedState = { name: "nothing", state: [], want: {} };

interface Walk {
  readonly states: readonly NamedState[];
  readonly mode: FlushMode;
  readonly order?: (updates: GraphUpdate[]) => GraphUpdate[];
}

const scratch = new Map<NamedState, Record<string, unknown>>();
function aloneFrom(named: NamedState, settings: Partial<GraphSettings>): Record<string, unknown> {
  let known = named === nothing ? undefined : scratch.get(named);
  if (known === undefined) scratch.set(named, (known = fromScratch(named.state, settings)));
  return known;
}

/** The matcher is slow on large equal values: it is asked only to show a difference. */
function expectSame(bench: GraphBench, want: Record<string, unknown>): void {
  const got = bench.dataplane.state();
  if (!Bun.deepEquals(got, want)) expect(got).toEqual(want);
}

/** @returns the bench at the end of the walk, checked at every state the dataplane was told of */
function walk({ states, mode, order }: Walk): GraphBench {
  const settings = states.find((each) => each.settings !== undefined)?.settings ?? {};
  const bench = new GraphBench(settings);
  for (const [i, named] of states.entries()) {
    bench.goTo(named.state, mode, order);
    if (i === 0) bench.inSync();
    const isToldNow = mode !== "end" || i === 0;
    if (isToldNow) expectSame(bench, aloneFrom(named, settings));
  }
  bench.flush();
  expectSame(bench, aloneFrom(states.at(-1) ?? nothing, settings));
  return bench;
}

const reversed = (updates: GraphUpdate[]) => updates.toReversed();
const EXPANSIONS: Readonly<Record<string, (states: readonly NamedState[]) => Pick<Walk, "states" | "order">[]>> = {
  "as is": (states) => [{ states }],
  "updates reversed": (states) => [{ states, order: reversed }],
  "states reversed": (states) => [{ states: states.toReversed() }],
  "nothing in between": (states) => [{ states: states.flatMap((state) => [state, nothing]) }],
  "each alone": (states) => states.map((state) => ({ states: [state] })),
  squashed: (states) => [{ states: [squash(states)] }],
};

function squash(states: readonly NamedState[]): NamedState {
  const all = new Map<string, GraphUpdate>();
  for (const { state } of states) for (const update of state) all.set(JSON.stringify(update.key), update);
  const settings = states.find((each) => each.settings !== undefined)?.settings;
  return { name: "squashed", state: [...all.values()], want: {}, ...(settings !== undefined && { settings }) };
}

for (const [name, expand] of Object.entries(EXPANSIONS))
  for (const mode of FLUSH_MODES)
    test(`FC-106 all states in turn, ${name}, flush ${mode}`, () => {
      for (const group of groups) for (const each of expand(group)) walk({ ...each, mode });
    });

test("FC-106 from every state to every other", () => {
  for (const group of groups)
    for (const from of group) for (const to of group) walk({ states: [from, to], mode: "each" });
});

test("FC-107 an update given again says nothing new", () => {
  for (const { state, settings } of NAMED_STATES) {
    const bench = new GraphBench(settings);
    bench.give(...state);
    bench.inSync();
    const before = bench.dataplane.messages;
    // Pools and what is handed through as it stands are said again, as the original does.
    const given = state.filter(({ key }) => !["pool", "wireguard", "resource"].includes(key.type));
    bench.give(...(structuredClone(given) as GraphUpdate[])).flush();
    expect(bench.dataplane.messages).toBe(before);
  }
});

/** A random walk over parts of states: every update of every state may come, change or go at any time. */
const arbWalk = (group: readonly NamedState[]) => {
  const updates = group.flatMap(({ state }) => state);
  return fc.record({
    start: fc.subarray(updates as GraphUpdate[]),
    steps: fc.array(fc.record({ update: fc.nat(updates.length - 1), remove: fc.boolean(), flush: fc.boolean() }), {
      minLength: 5,
      maxLength: 60,
    }),
  });
};

for (const [i, group] of groups.entries())
  test(`FC-106 any walk ends where the last state alone would have led, group ${i + 1}`, () => {
    const settings = group[0]?.settings ?? {};
    const updates = group.flatMap(({ state }) => state);
    fc.assert(
      fc.property(arbWalk(group), ({ start, steps }) => {
        const bench = new GraphBench(settings);
        const state = new Map<string, GraphUpdate>();
        for (const update of start) {
          bench.give(update);
          state.set(JSON.stringify(update.key), update);
        }
        bench.inSync();
        for (const step of steps) {
          const update = updates[step.update]!;
          const key = JSON.stringify(update.key);
          if (step.remove) {
            bench.remove(update);
            state.delete(key);
          } else {
            bench.give(update);
            state.set(key, update);
          }
          if (step.flush) bench.flush();
        }
        bench.flush();
        expect(bench.dataplane.state()).toEqual(fromScratch([...state.values()] as DatastoreState, settings));
      }),
      { numRuns: 150 },
    );
  });
