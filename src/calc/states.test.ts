// Checks that the dataplane's final state does not depend on earlier states of the datastore: it equals the state after a
// start with the final datastore state. The mock dataplane checks the guarantees of messages.ts for each message.
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { GraphSettings, GraphUpdate } from "./graph.ts";
import { copyOf, type DatastoreState, FLUSH_MODES, type FlushMode, fromScratch, GraphHarness } from "./testing/run.ts";
import { NAMED_STATES, type NamedState } from "./testing/states.ts";
import { summarize } from "./testing/summary.ts";

for (const { name, state, want, settings } of NAMED_STATES)
  test(`FC-084 FC-106 FC-108 state: ${name}`, () => {
    const harness = new GraphHarness(settings);
    harness.update(...state);
    harness.inSync();
    expect(summarize(harness.dataplane, Object.keys(want.sets ?? {}))).toEqual({
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

/** Within a group, the settings are equal, so that one process can change from one state to another. */
const groups: readonly (readonly NamedState[])[] = [
  NAMED_STATES.filter(({ settings }) => settings?.routes === "none"),
  NAMED_STATES.filter(({ settings }) => settings === undefined),
];
const emptyState: NamedState = { name: "empty", state: [], want: {} };

interface Walk {
  readonly states: readonly NamedState[];
  readonly mode: FlushMode;
  readonly order?: (updates: GraphUpdate[]) => GraphUpdate[];
}

const expectedStates = new Map<NamedState, Record<string, unknown>>();
function expectedStateOf(named: NamedState, settings: Partial<GraphSettings>): Record<string, unknown> {
  let expected = named === emptyState ? undefined : expectedStates.get(named);
  if (expected === undefined) expectedStates.set(named, (expected = fromScratch(named.state, settings)));
  return expected;
}

/** `toEqual` is slow for large equal values, so it is used only to show a difference. */
function expectSame(harness: GraphHarness, want: Record<string, unknown>): void {
  const got = harness.dataplane.state();
  if (!Bun.deepEquals(got, want)) expect(got).toEqual(want);
}

/** Applies the states in sequence and checks the dataplane after each flush. */
function walk({ states, mode, order }: Walk): GraphHarness {
  const settings = states.find((each) => each.settings !== undefined)?.settings ?? {};
  const harness = new GraphHarness(settings);
  for (const [i, named] of states.entries()) {
    harness.moveTo(named.state, mode, order);
    if (i === 0) harness.inSync();
    const isFlushed = mode !== "end" || i === 0;
    if (isFlushed) expectSame(harness, expectedStateOf(named, settings));
  }
  harness.flush();
  expectSame(harness, expectedStateOf(states.at(-1) ?? emptyState, settings));
  return harness;
}

const reversed = (updates: GraphUpdate[]) => updates.toReversed();
const EXPANSIONS: Readonly<Record<string, (states: readonly NamedState[]) => Pick<Walk, "states" | "order">[]>> = {
  "as is": (states) => [{ states }],
  "updates reversed": (states) => [{ states, order: reversed }],
  "states reversed": (states) => [{ states: states.toReversed() }],
  "empty state in between": (states) => [{ states: states.flatMap((state) => [state, emptyState]) }],
  "each alone": (states) => states.map((state) => ({ states: [state] })),
  squashed: (states) => [{ states: [squash(states)] }],
};

function squash(states: readonly NamedState[]): NamedState {
  const all = new Map<string, GraphUpdate>();
  for (const { state } of states) for (const update of state) all.set(JSON.stringify(update.key), update);
  const settings = states.find((each) => each.settings !== undefined)?.settings;
  return { name: "squashed", state: [...all.values()], want: {}, settings };
}

for (const [name, expand] of Object.entries(EXPANSIONS))
  for (const mode of FLUSH_MODES)
    test(`FC-106 applies all states in sequence: ${name}, flush ${mode}`, () => {
      for (const group of groups) for (const each of expand(group)) walk({ ...each, mode });
    });

test("FC-106 changes from every state to every other state", () => {
  for (const group of groups)
    for (const from of group) for (const to of group) walk({ states: [from, to], mode: "each" });
});

test("FC-107 a repeated update emits nothing", () => {
  for (const { state, settings } of NAMED_STATES) {
    const harness = new GraphHarness(settings);
    harness.update(...state);
    harness.inSync();
    const before = harness.dataplane.messages;
    // Pools, WireGuard peers and resources are emitted again, as in Calico.
    const repeated = state.filter(({ key }) => !["pool", "wireguard", "resource"].includes(key.type));
    harness.update(...copyOf(repeated)).flush();
    expect(harness.dataplane.messages).toBe(before);
  }
});

/** Generates random sequences in which any update of any state is applied, changed or removed at any time. */
const arbWalk = (group: readonly NamedState[]) => {
  const updates = group.flatMap(({ state }) => state);
  return fc.record({
    start: fc.subarray(updates as GraphUpdate[]),
    steps: fc.array(
      fc.record({
        update: fc.nat(updates.length - 1),
        remove: fc.boolean(),
        after: fc.constantFrom("nothing", "settle one step", "flush what is settled", "flush"),
      }),
      { minLength: 5, maxLength: 60 },
    ),
  });
};

for (const [i, group] of groups.entries())
  test(`FC-106 the result of random updates depends only on the final state, group ${i + 1}`, () => {
    const settings = group[0]?.settings ?? {};
    const updates = group.flatMap(({ state }) => state);
    fc.assert(
      fc.property(arbWalk(group), ({ start, steps }) => {
        const harness = new GraphHarness(settings);
        const state = new Map<string, GraphUpdate>();
        for (const update of start) {
          harness.update(update);
          state.set(JSON.stringify(update.key), update);
        }
        harness.inSync();
        for (const step of steps) {
          const update = updates[step.update]!;
          const key = JSON.stringify(update.key);
          if (step.remove) {
            harness.remove(update);
            state.delete(key);
          } else {
            harness.update(update);
            state.set(key, update);
          }
          if (step.after === "settle one step") harness.graph.settle(() => true);
          else if (step.after === "flush what is settled") harness.flushAfterSteps(1);
          else if (step.after === "flush") harness.flush();
        }
        harness.flush();
        expect(harness.dataplane.state()).toEqual(fromScratch([...state.values()] as DatastoreState, settings));
      }),
      { numRuns: 150 },
    );
  });
