// Applies datastore states to a graph with a mock dataplane. The test chooses the order of updates and when to flush.
import { CalculationGraph, type GraphListener, type GraphSettings, type GraphUpdate } from "../graph.ts";
import { ParsedSelector } from "../../model/index.ts";
import { LOCAL } from "./build.ts";
import { MockDataplane } from "./mock-dataplane.ts";

const SETTINGS: GraphSettings = {
  host: LOCAL,
  omitNestedPrefixes: true,
  routes: "ipam",
  vteps: true,
  ambientMesh: true,
  programsNoEncapRoutes: true,
  toRawConfig: () => ({}),
};

export type DatastoreState = readonly GraphUpdate[];
/** When to flush: after each update, after each update sent twice, after each state, or only at the end. */
export const FLUSH_MODES = ["each", "each twice", "state", "end"] as const;
export type FlushMode = (typeof FLUSH_MODES)[number];

const keyText = (update: GraphUpdate): string => JSON.stringify(update.key);

/** Returns a deep copy, as a syncer would create it. Selectors are not copied, because they are compared by `===`. */
export function copyOf<T>(value: T): T {
  if (typeof value !== "object" || value === null || value instanceof ParsedSelector) return value;
  if (Array.isArray(value)) return value.map(copyOf) as T;
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, copyOf(field)])) as T;
}

/** Returns the updates that change one state into the other. */
function transition(from: DatastoreState, to: DatastoreState): GraphUpdate[] {
  const before = new Map(from.map((update) => [keyText(update), update]));
  const after = new Map(to.map((update) => [keyText(update), update]));
  const changed = [...after].filter(([key, update]) => !Bun.deepEquals(before.get(key)?.value, update.value, true));
  const deleted = [...before].filter(([key]) => !after.has(key));
  return [
    ...changed.map(([, update]) => update),
    ...deleted.map(([, update]) => ({ ...update, value: undefined }) as GraphUpdate),
  ];
}

export class GraphHarness {
  readonly dataplane = new MockDataplane();
  readonly graph: CalculationGraph;
  #state: DatastoreState = [];

  constructor(settings: Partial<GraphSettings> = {}, listener: Partial<GraphListener> = {}) {
    this.graph = new CalculationGraph(
      { ...SETTINGS, ...settings },
      { ...listener, onMessage: (message) => this.dataplane.receive(message) },
    );
  }

  update(...updates: readonly GraphUpdate[]): this {
    for (const update of updates) this.graph.update(update);
    return this;
  }
  remove(...updates: readonly GraphUpdate[]): this {
    for (const update of updates) this.graph.update({ ...update, value: undefined } as GraphUpdate);
    return this;
  }
  flush(): this {
    this.graph.flush();
    this.dataplane.endFlush();
    return this;
  }
  /** Does some of the work, and flushes what is settled. */
  flushAfterSteps(count: number): this {
    let left = count;
    this.graph.settle(() => --left <= 0);
    this.graph.flushSettled();
    this.dataplane.endFlush();
    return this;
  }
  inSync(): this {
    this.graph.setInSync();
    return this.flush();
  }

  /** Changes the datastore to `state`, one update at a time. */
  moveTo(
    state: DatastoreState,
    mode: FlushMode,
    order: (updates: GraphUpdate[]) => GraphUpdate[] = (all) => all,
  ): void {
    for (const update of order(transition(this.#state, state))) {
      this.update(update);
      if (mode === "each twice") this.update(update);
      if (mode === "each" || mode === "each twice") this.flush();
    }
    this.#state = state;
    if (mode !== "end") this.flush();
  }
}

/** Returns the dataplane's state after a graph was started with `state` and received nothing else. */
export function fromScratch(state: DatastoreState, settings: Partial<GraphSettings> = {}): Record<string, unknown> {
  const harness = new GraphHarness(settings);
  harness.update(...state);
  harness.inSync();
  return harness.dataplane.state();
}
