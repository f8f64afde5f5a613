// Feeds datastore states to a graph and a mock dataplane, in whatever order and with whatever flushes a test wants.
import { CalculationGraph, type GraphListener, type GraphSettings, type GraphUpdate } from "../graph.ts";
import { LOCAL } from "./build.ts";
import { MockDataplane } from "./mock-dataplane.ts";

const SETTINGS: GraphSettings = {
  host: LOCAL,
  withoutOverlaps: true,
  routes: "ipam",
  vteps: true,
  ambientMesh: true,
  ownsNoEncapRoutes: true,
  toRawConfig: () => ({}),
};

export type DatastoreState = readonly GraphUpdate[];
/** When to flush: after every update, every update given twice, after each state, or only at the end. */
export const FLUSH_MODES = ["each", "each twice", "state", "end"] as const;
export type FlushMode = (typeof FLUSH_MODES)[number];

const keyText = (update: GraphUpdate): string => JSON.stringify(update.key);

/** What turns one state into the other. */
function transition(from: DatastoreState, to: DatastoreState): GraphUpdate[] {
  const before = new Map(from.map((update) => [keyText(update), update]));
  const after = new Map(to.map((update) => [keyText(update), update]));
  const changed = [...after].filter(([key, update]) => !Bun.deepEquals(before.get(key)?.value, update.value, true));
  const gone = [...before].filter(([key]) => !after.has(key));
  return [
    ...changed.map(([, update]) => update),
    ...gone.map(([, update]) => ({ ...update, value: undefined }) as GraphUpdate),
  ];
}

export class GraphBench {
  readonly dataplane = new MockDataplane();
  readonly graph: CalculationGraph;
  #state: DatastoreState = [];

  constructor(settings: Partial<GraphSettings> = {}, listener: Partial<GraphListener> = {}) {
    this.graph = new CalculationGraph(
      { ...SETTINGS, ...settings },
      { ...listener, onMessage: (message) => this.dataplane.take(message) },
    );
  }

  give(...updates: readonly GraphUpdate[]): this {
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
  inSync(): this {
    this.graph.setInSync();
    return this.flush();
  }

  /** Moves to a state, one update at a time. */
  goTo(state: DatastoreState, mode: FlushMode, order: (updates: GraphUpdate[]) => GraphUpdate[] = (all) => all): void {
    for (const update of order(transition(this.#state, state))) {
      this.give(update);
      if (mode === "each twice") this.give(update);
      if (mode === "each" || mode === "each twice") this.flush();
    }
    this.#state = state;
    if (mode !== "end") this.flush();
  }
}

/** What the dataplane knows when the state is all there ever was. */
export function fromScratch(state: DatastoreState, settings: Partial<GraphSettings> = {}): Record<string, unknown> {
  const bench = new GraphBench(settings);
  bench.give(...state);
  bench.inSync();
  return bench.dataplane.state();
}
