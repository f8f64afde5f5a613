// Measures the calculation graph alone: from a snapshot in memory until all messages are emitted, then single changes.
//
//   bun bench/calc.ts [state …]      endpoints-10k, endpoints-50k, endpoints-250k, network-sets, tenants-10k, tenants-100k
//
// Each state runs in its own process, so that RSS is measured separately. "original" is Calico on a similar machine.
import { spawnSync } from "node:child_process";
import { CalculationGraph, type DataplaneMessage, type GraphUpdate } from "../src/calc/index.ts";
import { policySettings } from "../src/calc/testing/settings.ts";
import type { Cidr } from "../src/lib/ip/ip.ts";
import type { Labels, Policy, Rule, RuleSide, WorkloadEndpoint } from "../src/model/index.ts";
import { decodePolicy } from "../src/typha/policy-values.ts";
import { median } from "./support/percentile.ts";

/** A policy is decoded when it is passed to the graph, so that the time includes parsing its selectors. */
type Change = GraphUpdate | (() => GraphUpdate);
const decoded = (change: Change): GraphUpdate => (typeof change === "function" ? change() : change);

type TextSide = Omit<RuleSide, "selector"> & { readonly selector?: string };
type TextRule = Omit<Rule, "source" | "destination"> & { readonly source: TextSide; readonly destination: TextSide };
/** Encodes a policy as in Typha's protocol, with selectors as text. */
type TextPolicy = Omit<Policy, "tier" | "selector" | "inboundRules" | "outboundRules"> & {
  readonly selector: string;
  readonly inboundRules: readonly TextRule[];
  readonly outboundRules: readonly TextRule[];
};

interface State {
  readonly snapshot: Change[];
  /** An endpoint that is added and removed. */
  readonly endpoint: (n: number) => GraphUpdate;
  /** Updates that change a label of one percent of the endpoints. */
  readonly relabel: (round: number) => GraphUpdate[];
  readonly policy: (round: number) => Change;
}
interface Case {
  readonly build: () => State;
  readonly budgetSeconds: number;
  readonly calicoSeconds?: number;
  readonly budgetMb?: number;
}

const HOST = "localhost";
const ip = (n: number) => `${10 + (n >> 24)}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}/32` as Cidr;
/** Copies all strings, because the values of a syncer do not share strings. */
const fresh = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;
const MARKERS = Array.from({ length: 30 }, (_, i) => `marker/label-${i}`);

function workload(n: number, host: string, labels: Labels, profile: string): GraphUpdate {
  const value: WorkloadEndpoint = {
    state: "active",
    name: `cali${n}`,
    mac: "ee:ee:ee:ee:ee:ee",
    profileIds: [profile],
    ipv4Nets: [ip(n + 1)],
    ipv6Nets: [],
    labels,
    ports: [],
  };
  return {
    key: { type: "workloadEndpoint", host, orchestrator: "k8s", workload: `ns/wep-${n}`, endpoint: "eth0" },
    value: fresh(value),
  };
}

function profile(name: string, labels: Labels): GraphUpdate[] {
  return [
    { key: { type: "profileRules", name }, value: { inboundRules: [], outboundRules: [] } },
    { key: { type: "profileLabels", name }, value: fresh(labels) },
    {
      key: { type: "resource", kind: "Profile", name },
      value: {
        apiVersion: "projectcalico.org/v3",
        kind: "Profile",
        metadata: { name },
        spec: { labelsToApply: fresh(labels) },
      },
    },
  ];
}

function policyUpdate(name: string, policy: TextPolicy, namespace = ""): Change {
  const json = fresh({ tier: "default", ...policy });
  const kind = namespace === "" ? "GlobalNetworkPolicy" : "NetworkPolicy";
  return () => ({ key: { type: "policy", kind, namespace, name }, value: decodePolicy(json) });
}

/** Endpoints with five labels of different cardinality and a marker label; policies and their five rules select by marker. */
function endpoints(total: number, policies: number, networkSets: number): State {
  const labels = (n: number, extra: Labels = {}): Labels => ({
    ...Object.fromEntries([10, 11, 20, 30, 40].map((k) => [`one-in-${k}`, `value-${n % k}`])),
    [MARKERS[n % MARKERS.length]!]: "true",
    ...extra,
  });
  const snapshot: Change[] = [];
  const markerPolicy = (i: number, port: number): Change =>
    policyUpdate(`tag-pol-${i}`, {
      selector: `has(${MARKERS[i % MARKERS.length]})`,
      types: ["ingress", "egress"],
      inboundRules: [0, 1, 2, 3, 4].map((j) => ({
        action: "allow",
        ...(port > 0 && { protocol: "tcp" }),
        source: { selector: `has(${MARKERS[(i + j) % MARKERS.length]})` },
        destination: port > 0 ? { ports: [{ min: port, max: port }] } : {},
      })),
      outboundRules: [],
    });
  const setPolicy = (i: number, port: number): Change =>
    policyUpdate(`network-set-pol-${i}`, {
      selector: "all()",
      types: ["ingress"],
      inboundRules: [
        {
          action: "allow",
          ...(port > 0 && { protocol: "tcp" }),
          source: { selector: `network-set-name == "network-set-${i}"` },
          destination: port > 0 ? { ports: [{ min: port, max: port }] } : {},
        },
      ],
      outboundRules: [],
    });
  for (let i = 0; i < policies; i++) snapshot.push(markerPolicy(i, 0));
  for (let i = 0; i < 100; i++)
    snapshot.push(...profile(`kns.namespace-${i}`, { "pcns.projectcalico.org/name": `namespace-${i}` }));
  for (let n = 0; n < total; n++)
    snapshot.push(workload(n, `remote-${Math.floor(n / 100)}`, labels(n), `kns.namespace-${n % 100}`));
  const sizes = [1, 1, 1, 1, 2, 3, 4, 5, 100, 1000];
  for (let i = 0, next = 1 << 26; i < networkSets; i++) {
    const name = `network-set-${i}`;
    const nets = Array.from({ length: sizes[i % sizes.length]! }, () => ip(next++));
    snapshot.push({
      key: { type: "networkSet", name },
      value: fresh({ nets, labels: { "network-set-name": name }, profileIds: [] }),
    });
    snapshot.push(setPolicy(i, 0));
  }
  for (let n = 0; n < 200; n++) snapshot.push(workload(total + n, HOST, labels(total + n), `kns.namespace-${n % 100}`));
  return {
    snapshot,
    endpoint: (n) => workload(total + 1000 + n, "remote-x", labels(n), `kns.namespace-${n % 100}`),
    relabel: (round) =>
      Array.from({ length: Math.floor(total / 100) }, (_, i) =>
        workload(
          i * 100,
          `remote-${i}`,
          labels(i * 100, { [MARKERS[1]!]: `round-${round}` }),
          `kns.namespace-${(i * 100) % 100}`,
        ),
      ),
    policy: (round) => (policies > 0 ? markerPolicy(7, 1000 + round) : setPolicy(7, 1000 + round)),
  };
}

/** Isolated namespaces: one pod and one policy each; fifteen labels, of which five are unique. */
function tenants(count: number): State {
  const word = (n: number, length: number) =>
    Bun.hash(`${n}-${length}`).toString(36).padEnd(length, "x").slice(0, length);
  const labels = (n: number, extra: Labels = {}): Labels => ({
    ...Object.fromEntries([20, 19, 10, 18, 8].map((length, i) => [`unique-${i}`, word(n, length)])),
    ...Object.fromEntries([0, 1, 2, 3].map((i) => [`binary-${i}`, String((n >> i) & 1)])),
    environment: `env-${n % 3}`,
    tier: `tier-${n % 4}`,
    region: `region-${n % 7}`,
    team: `team-${n % 20}`,
    marker: "true",
    release: word(n % 5000, 11),
    ...extra,
  });
  const namespace = (n: number) => `customer-${n}`;
  const isolate = (n: number, port: number): Change => {
    const selector = `pcns.projectcalico.org/name == "${namespace(n)}"`;
    return policyUpdate(
      "isolate",
      {
        namespace: namespace(n),
        selector,
        types: ["ingress", "egress"],
        inboundRules: [{ action: "allow", source: { selector }, destination: {} }],
        outboundRules: [
          { action: "allow", source: {}, destination: { selector } },
          {
            action: "allow",
            protocol: "udp",
            source: {},
            destination: { nets: ["10.96.0.10/32" as Cidr], ports: [{ min: port, max: port }] },
          },
        ],
      },
      namespace(n),
    );
  };
  const snapshot: Change[] = [];
  for (let n = 0; n < count; n++) snapshot.push(isolate(n, 53));
  for (let n = 0; n < count; n++)
    snapshot.push(
      ...profile(`kns.${namespace(n)}`, {
        "pcns.projectcalico.org/name": namespace(n),
        "namespace-id": word(n, 20),
        production: String(n % 2 === 0),
      }),
    );
  const pod = (n: number, extra: Labels = {}) =>
    workload(n, n < 100 ? HOST : `remote-${Math.floor(n / 100)}`, labels(n, extra), `kns.${namespace(n)}`);
  for (let n = 100; n < count; n++) snapshot.push(pod(n));
  for (let n = 0; n < 100; n++) snapshot.push(pod(n));
  return {
    snapshot,
    endpoint: (n) => workload(count + n, "remote-x", labels(count + n), `kns.${namespace(n)}`),
    relabel: (round) =>
      Array.from({ length: Math.floor(count / 100) }, (_, i) => pod(i * 100 + 50, { release: `round-${round}` })),
    policy: (round) => isolate(7, 1000 + round),
  };
}

const cases: Readonly<Record<string, Case>> = {
  "endpoints-10k": { build: () => endpoints(10_000, 1000, 0), budgetSeconds: 1 },
  "endpoints-50k": { build: () => endpoints(50_000, 4000, 0), budgetSeconds: 3 },
  "endpoints-250k": {
    build: () => endpoints(250_000, 10_000, 0),
    budgetSeconds: 8,
    calicoSeconds: 10.9,
    budgetMb: 700,
  },
  "network-sets": { build: () => endpoints(10_000, 0, 1000), budgetSeconds: 1, calicoSeconds: 1.5 },
  "tenants-10k": { build: () => tenants(10_000), budgetSeconds: 0.6, calicoSeconds: 0.7 },
  "tenants-100k": { build: () => tenants(100_000), budgetSeconds: 6, calicoSeconds: 11.8 },
};

const rss = () => Math.round(process.memoryUsage().rss / (1 << 20));

function run(name: string, { build, budgetSeconds, calicoSeconds, budgetMb }: Case): void {
  const state = build();
  Bun.gc(true);
  const before = rss();
  let messages: DataplaneMessage[] = [];
  let messageCount = 0;
  const graph = new CalculationGraph(policySettings(HOST), {
    onMessage: (message) => {
      messageCount++;
      if (messages.length < 10) messages.push(message);
    },
  });
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  for (const change of state.snapshot) graph.update(decoded(change));
  graph.setInSync();
  graph.flush();
  const seconds = (performance.now() - started) / 1000;
  const cpu = process.cpuUsage(cpuBefore);
  const peak = rss();
  const statistics = graph.statistics;
  messages = [];
  const timed = (rounds: number, change: (round: number) => void): number =>
    median(
      Array.from({ length: rounds }, (_, round) => {
        const start = performance.now();
        change(round);
        graph.flush();
        return (performance.now() - start) * 1000;
      }),
    );
  const churn = timed(301, (round) => {
    const update = state.endpoint(round);
    graph.update(update);
    graph.flush(); // otherwise the two updates would cancel out before a message is emitted
    graph.update({ ...update, value: undefined } as GraphUpdate);
  });
  const edit = timed(101, (round) => graph.update(decoded(state.policy(round))));
  const relabels = [1, 2, 3].map((round) => state.relabel(round));
  const relabel = timed(relabels.length, (round) => {
    for (const update of relabels[round]!) graph.update(update);
  });
  const row = {
    state: name,
    updates: state.snapshot.length,
    messages: messageCount,
    policies: statistics.activePolicies,
    sets: statistics.activeSelectors,
    seconds: Number(seconds.toFixed(2)),
    cpuSeconds: Number(((cpu.user + cpu.system) / 1e6).toFixed(2)),
    budget: budgetSeconds,
    original: calicoSeconds ?? null,
    ratio: calicoSeconds === undefined ? null : Number((calicoSeconds / seconds).toFixed(1)),
    snapshotMb: before,
    rssMb: peak,
    budgetMb: budgetMb ?? null,
    churnUs: Math.round(churn),
    policyEditUs: Math.round(edit),
    relabelOnePercentMs: Number((relabel / 1000).toFixed(1)),
    relabelUsEach: Number((relabel / relabels[0]!.length).toFixed(1)),
  };
  console.log(JSON.stringify(row));
  if (seconds > budgetSeconds || (budgetMb !== undefined && peak > budgetMb)) process.exitCode = 1;
}

const [wanted] = process.argv.slice(2);
const chosen = wanted === undefined ? undefined : cases[wanted];
if (wanted !== undefined && chosen !== undefined && process.argv.length === 3) run(wanted, chosen);
else
  for (const name of wanted === undefined ? Object.keys(cases) : process.argv.slice(2)) {
    if (cases[name] === undefined)
      throw new Error(`unknown state ${name}, want one of ${Object.keys(cases).join(", ")}`);
    const result = spawnSync(process.execPath, [import.meta.path, name], { stdio: "inherit" });
    if (result.status !== 0) process.exitCode = 1;
  }
