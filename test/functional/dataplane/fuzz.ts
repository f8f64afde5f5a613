// Compares the kernel's verdict on random packets in random clusters with that of the policy evaluator. The dataplane receives
// the differences from one cluster to the next, as in a real cluster.
import { CalculationGraph, type GraphUpdate } from "../../../src/calc/index.ts";
import type { KeyValue } from "../../../src/model/index.ts";
import { describePacket, evaluatePacket, PolicyState, type Verdict } from "../../../src/policy/index.ts";
import { clusters, HOST, HOSTNAME, PODS, packetsFor, randomFrom } from "./fuzz-states.ts";
import type { Backend } from "./host.ts";
import type { Sent } from "./packet-world.ts";
import { WorldDataplane } from "./world-dataplane.ts";

export interface FuzzOptions {
  readonly backend: Backend;
  readonly seed: number;
  /** The minimum number of packets. */
  readonly packets: number;
  readonly packetsPerState: number;
  readonly onState?: (progress: FuzzProgress) => void;
}

export interface FuzzProgress {
  readonly packets: number;
  /** The number of packets that passed. */
  readonly passed: number;
  readonly states: number;
  readonly mismatches: readonly string[];
  /** The time spent in each part. */
  readonly seconds: { readonly programming: number; readonly packets: number; readonly judging: number };
}

export async function fuzz(options: FuzzOptions): Promise<FuzzProgress> {
  const { backend, seed } = options;
  await using dataplane = new WorldDataplane({ backend, pods: PODS, host: HOST, hostname: HOSTNAME });
  const { world } = dataplane;
  const graph = new CalculationGraph(
    {
      host: HOSTNAME,
      omitNestedPrefixes: backend === "nftables",
      routes: "none",
      vteps: false,
      ambientMesh: false,
      programsNoEncapRoutes: false,
      toRawConfig: () => ({}),
    },
    { onMessage: (message) => dataplane.enqueue(message) },
  );
  const random = randomFrom(seed);
  const seconds = { programming: 0, packets: 0, judging: 0 };
  const progress = { packets: 0, passed: 0, states: 0, mismatches: [] as string[], seconds };
  let before: readonly KeyValue[] = [];
  let last: Round | undefined;
  const settle = () => {
    if (last === undefined) return;
    world.poll();
    progress.packets += last.sent.length;
    progress.passed += last.arrived.filter(Boolean).length;
    progress.mismatches.push(...last.differences().map((each) => describe(options, progress.states, each, before)));
    progress.states++;
    last = undefined;
    options.onState?.(progress);
  };
  for (const entries of clusters(seed)) {
    await timed(seconds, "programming", () =>
      dataplane.settle(() => {
        for (const update of transition(before, entries)) graph.update(update);
        if (before.length === 0) graph.setInSync();
        graph.flush();
      }),
    );
    settle(); // late packets of the previous state have arrived by now
    before = entries;
    if (progress.packets >= options.packets) break;
    const sent = packetsFor(entries, options.packetsPerState, random);
    const verdicts = await timed(seconds, "judging", () => {
      const state = new PolicyState(entries);
      return sent.map(({ packet }) => evaluatePacket(state, { packet }));
    });
    await timed(seconds, "packets", async () => {
      // Missing packets are sent once more, in case the machine was too busy to deliver them in time. A packet that passes
      // against the verdict once is a failure.
      for (let attempt = 0; attempt < 2; attempt++) {
        world.forgetConnections();
        last = new Round(sent, verdicts, await world.send(sent, verdicts.map(isAllowed)));
        const differences = last.differences();
        if (differences.length === 0 || differences.some(({ hasArrived }) => hasArrived)) break;
      }
    });
  }
  return progress;
}

const isAllowed = (verdict: Verdict): boolean => verdict.action === "allow";

interface Difference {
  readonly sent: Sent;
  readonly verdict: Verdict;
  readonly hasArrived: boolean;
}

class Round {
  constructor(
    readonly sent: readonly Sent[],
    readonly verdicts: readonly Verdict[],
    /** Updated by the packet world until it sends other packets. */
    readonly arrived: readonly boolean[],
  ) {}

  differences(): Difference[] {
    return this.sent.flatMap((sent, i) => {
      const verdict = this.verdicts[i];
      const hasArrived = this.arrived[i] === true;
      return verdict === undefined || isAllowed(verdict) === hasArrived ? [] : [{ sent, verdict, hasArrived }];
    });
  }
}

async function timed<T, K extends string>(sums: Record<K, number>, name: K, body: () => T | Promise<T>): Promise<T> {
  const started = performance.now();
  try {
    return await body();
  } finally {
    sums[name] += (performance.now() - started) / 1000;
  }
}

const keyText = (entry: { readonly key: unknown }) => JSON.stringify(entry.key);
function transition(from: readonly KeyValue[], to: readonly KeyValue[]): GraphUpdate[] {
  const after = new Map(to.map((entry) => [keyText(entry), entry]));
  const before = new Map(from.map((entry) => [keyText(entry), entry]));
  return [
    ...[...after]
      .filter(([key, entry]) => !Bun.deepEquals(before.get(key)?.value, entry.value, true))
      .map(([, e]) => e),
    ...[...before].filter(([key]) => !after.has(key)).map(([, e]) => ({ ...e, value: undefined })),
  ] as GraphUpdate[];
}

function describe(
  { backend, seed, packetsPerState }: FuzzOptions,
  state: number,
  { sent, verdict, hasArrived }: Difference,
  entries: readonly KeyValue[],
): string {
  return [
    `${backend}, seed ${seed}, ${packetsPerState} packets per state, state ${state}: ${describePacket(sent.packet)} from ${sent.from}`,
    `kernel: ${hasArrived ? "arrived" : "did not arrive"}; evaluator: ${verdict.action}, ${verdict.because}`,
    JSON.stringify(verdict.checkpoints, undefined, 1),
    ...entries.map((entry) => JSON.stringify(entry)),
  ].join("\n");
}
