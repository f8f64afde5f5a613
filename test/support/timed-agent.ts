// Runs a node agent in a network namespace and measures its event loop, CPU time and health port, with one workload that a
// policy selects. Used by tests and benchmarks of large objects.
import { spawn } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NetworkNamespace, Nft } from "../../src/kernel/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { TestNamespace } from "../functional/kernel/test-namespace.ts";
import { kubeconfigText } from "../kubernetes/api-server.ts";
import type { Cluster } from "../kubernetes/cluster.ts";
import { FelixProcess } from "./felix-process.ts";
import { type Forwarder, forwardInto } from "./host-forwarder.ts";
import type { Timings } from "./loop-timer.ts";

export type TimedMode = "nftables" | "iptables";

export interface Measured extends Timings {
  /** From the write to the datastore until the kernel has the change, or from its end until the agent is idle. */
  readonly wallMs: number;
  /** The longest that a liveness or readiness probe took; infinite if one failed. */
  readonly slowestProbeMs: number;
}

/** The workload endpoint, if the datastore is an SQLite file. */
export const WORKLOAD = { name: "node--a-k8s-web-eth0", namespace: "default", address: "10.65.0.2" } as const;

export interface TimedAgentOptions {
  /** The Kubernetes API instead of an SQLite file. The agent is node-a; the workload is the pod ns1/web. */
  readonly cluster?: Cluster;
}

const FEED_LABELS = { feed: "threats" };

export class TimedAgent implements AsyncDisposable {
  readonly #space: TestNamespace;
  readonly #felix: FelixProcess;
  readonly #mode: TimedMode;
  readonly #nft: Nft;
  readonly #cluster: Cluster | undefined;
  readonly #relays: Disposable[] = [];
  #stopProbes: (() => void)[] = [];
  #probeTimesMs: number[] = [];

  private constructor(space: TestNamespace, felix: FelixProcess, mode: TimedMode, cluster?: Cluster) {
    this.#space = space;
    this.#felix = felix;
    this.#mode = mode;
    this.#cluster = cluster;
    this.#nft = space.enter(() => new Nft());
  }

  static async start(mode: TimedMode, { cluster }: TimedAgentOptions = {}): Promise<TimedAgent> {
    if (cluster !== undefined) await cluster.put("/api/v1/nodes", { metadata: { name: "node-a" } });
    const felix = await FelixProcess.prepare(cluster?.config);
    const agent = new TimedAgent(new TestNamespace("timed"), felix, mode, cluster);
    try {
      await agent.#putWorkload();
      await agent.run();
      return agent;
    } catch (error) {
      await agent[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #putWorkload(): Promise<void> {
    if (this.#cluster !== undefined) return await this.#cluster.apply(WEB_POD);
    await this.#felix.put(
      "WorkloadEndpoint",
      WORKLOAD.name,
      {
        ...{ node: "node-a", orchestrator: "k8s", pod: "web", endpoint: "eth0", interfaceName: "cali0" },
        ...{ ipNetworks: ["10.65.0.2/32"], profiles: [] },
      },
      { namespace: WORKLOAD.namespace, labels: { "projectcalico.org/namespace": "default" } },
    );
    await this.putPolicy("block-feed", { selector: "feed == 'threats'" });
  }

  /** Starts the agent, also after `stop`, and waits for its first apply. */
  async run(): Promise<void> {
    const felix = this.#felix;
    const printedBefore = felix.output.length;
    rmSync(this.#socket, { force: true });
    // In a mount namespace, so that `/var/lib/calico` of the host is not changed.
    const within = ["ip", "netns", "exec", this.#space.name, "sh", "-c", 'mount -t tmpfs calico /var/lib && exec "$@"'];
    felix.start(
      {
        BUN_OPTIONS: `--preload ${join(import.meta.dir, "loop-timer.ts")}`,
        TIMER_SOCKET: this.#socket,
        FELIX_USEINTERNALDATAPLANEDRIVER: "true",
        FELIX_NFTABLESMODE: this.#mode === "nftables" ? "Enabled" : "Disabled",
        FELIX_IPTABLESBACKEND: "legacy",
        FELIX_FAILSAFEINBOUNDHOSTPORTS: "none",
        ...this.#datastoreSettings(),
      },
      [],
      [...within, "sh"],
    );
    this.#stopProbes = [this.#startProbes("liveness")];
    await eventually(() => {
      if (!felix.isRunning) throw new Error(`the agent exited:\n${felix.output}`);
      return felix.output.includes("first round applied", printedBefore);
    }, START_WITHIN_MS);
    this.#stopProbes.push(this.#startProbes("readiness"));
  }

  async stop(): Promise<void> {
    this.#endProbes();
    this.#felix.signal("SIGKILL");
    await this.#felix.exit();
  }

  #datastoreSettings(): Readonly<Record<string, string>> {
    if (this.#cluster === undefined) return {};
    const { url, ca, adminToken } = this.#cluster.server;
    const kubeconfig = join(this.#felix.folder, "kubeconfig");
    if (this.#relays.length === 0) {
      const handle = NetworkNamespace.named(this.#space.name);
      const relay: Forwarder = forwardInto({ handle }, url);
      this.#relays.push(relay, handle);
      writeFileSync(kubeconfig, kubeconfigText(relay.url, ca, adminToken), { mode: 0o600 });
    }
    return { DATASTORE_TYPE: "kubernetes", KUBECONFIG: kubeconfig };
  }

  /** The name of the agent's network namespace. */
  get namespace(): string {
    return this.#space.name;
  }

  get output(): string {
    return this.#felix.output;
  }

  /** The cluster's datastore. */
  get store(): Pick<FelixProcess, "put" | "remove"> {
    return this.#felix;
  }

  /** Writes a network set that the policy blocks. */
  putFeed(name: string, nets: readonly string[]): Promise<void> {
    return this.#felix.put("GlobalNetworkSet", name, { nets }, { labels: FEED_LABELS });
  }

  /** Writes a policy that denies traffic from the peer to the workload. */
  putPolicy(name: string, peer: object): Promise<void> {
    const ingress = [{ action: "Deny", source: peer }, { action: "Allow" }];
    return this.#felix.put("GlobalNetworkPolicy", name, { order: 1, selector: "all()", types: ["Ingress"], ingress });
  }

  /** @param entries the number of members that the feed's set has afterwards; read in iptables mode only */
  async measure(entries: number, write: () => Promise<void>): Promise<Measured> {
    await this.#timings();
    this.#probeTimesMs = [];
    const startMs = performance.now();
    const state = { first: this.#nft.generation(), last: 0, changedAtMs: startMs };
    state.last = state.first;
    await write();
    await eventually(() => {
      if (!this.#felix.isRunning) throw new Error(`the agent exited:\n${this.#felix.output}`);
      return this.#mode === "iptables" ? this.#isIpsetComplete(entries, state) : this.#isNftablesSettled(state);
    }, 120_000);
    await eventually(() => this.#probeTimesMs.length > 0);
    return {
      ...(await this.#timings()),
      wallMs: state.changedAtMs - startMs,
      slowestProbeMs: Math.max(...this.#probeTimesMs),
    };
  }

  /** Runs `write` and waits until the agent and its child processes are idle. */
  async measureUntilIdle(write: () => Promise<unknown>, withinMs = 300_000): Promise<Measured> {
    if (this.#felix.isRunning) await this.#timings();
    this.#probeTimesMs = [];
    const startMs = performance.now();
    const samples = [{ atMs: startMs, cpuMs: this.#cpuMs() }];
    let busyAtMs = 0;
    await write();
    const writtenAtMs = performance.now();
    await eventually(() => {
      if (!this.#felix.isRunning) throw new Error(`the agent exited:\n${this.#felix.output.slice(-5000)}`);
      const sample = { atMs: performance.now(), cpuMs: this.#cpuMs() };
      const before = samples.findLast(({ atMs }) => atMs <= sample.atMs - IDLE_WINDOW_MS);
      samples.push(sample);
      if (before === undefined || sample.cpuMs - before.cpuMs > IDLE_SHARE * (sample.atMs - before.atMs))
        busyAtMs = sample.atMs;
      return sample.atMs - busyAtMs > IDLE_WINDOW_MS && sample.atMs - writtenAtMs > RECEIVED_AFTER_MS;
    }, withinMs);
    await eventually(() => this.#probeTimesMs.length > 0);
    return {
      ...(await this.#timings()),
      wallMs: Math.max(0, busyAtMs - writtenAtMs),
      slowestProbeMs: Math.max(...this.#probeTimesMs),
    };
  }

  /** CPU time of the agent and its children, including children that have exited. */
  #cpuMs(): number {
    const { pid } = this.#felix;
    const ids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
    const processes = ids.map((id) => ({ id: Number(id), ...readStat(id) }));
    const ticks = processes.map(({ id, parent, own, ended }) => {
      if (id === pid) return own + ended;
      return parent === pid ? own : 0;
    });
    return ticks.reduce((sum, each) => sum + each, 0) * TICK_MS;
  }

  #isNftablesSettled(state: { readonly first: number; last: number; changedAtMs: number }): boolean {
    const generation = this.#nft.generation();
    if (generation !== state.last) state.changedAtMs = performance.now();
    state.last = generation;
    return generation !== state.first && performance.now() - state.changedAtMs > STABLE_MS;
  }

  #isIpsetComplete(entries: number, state: { changedAtMs: number }): boolean {
    const text = this.#space.run("ipset", ["list", "-t"]);
    state.changedAtMs = performance.now();
    return [...text.matchAll(/^Name: cali40s:[^]*?^Number of entries: (\d+)$/gm)].some(
      ([, n]) => Number(n) === entries,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#endProbes();
    this.#nft[Symbol.dispose]();
    await this.#felix[Symbol.asyncDispose]();
    for (const relay of this.#relays) relay[Symbol.dispose]();
    this.#space[Symbol.dispose]();
  }

  get #socket(): string {
    return join(this.#felix.folder, "timer.sock");
  }

  async #timings(): Promise<Timings> {
    const response = await fetch("http://timer/", { unix: this.#socket });
    return (await response.json()) as Timings;
  }

  #endProbes(): void {
    for (const end of this.#stopProbes) end();
    this.#stopProbes = [];
  }

  #startProbes(page: "liveness" | "readiness"): () => void {
    const url = `http://127.0.0.1:${this.#felix.healthPort}/${page}`;
    const curl = `curl -s -m ${PROBE_TIMEOUT_S} -o /dev/null -w '%{http_code} %{time_total}\\n' ${url}`;
    const child = spawn(
      "ip",
      ["netns", "exec", this.#space.name, "sh", "-c", `while :; do ${curl}; sleep 0.02; done`],
      {
        stdio: ["ignore", "pipe", "ignore"],
        detached: true,
      },
    );
    child.stdout.on("data", (chunk: Buffer) => {
      for (const [, status, seconds] of chunk.toString().matchAll(/^(\d+) ([\d.]+)$/gm))
        this.#probeTimesMs.push(status === "200" ? Number(seconds) * 1000 : Number.POSITIVE_INFINITY);
    });
    const { pid } = child;
    return () => {
      if (pid !== undefined) process.kill(-pid, "SIGKILL"); // the shell and its curl
    };
  }
}

/** Without a further transaction for this long, all of a change is in the kernel. */
const STABLE_MS = 400;
const PROBE_TIMEOUT_S = 3;
const START_WITHIN_MS = 300_000;
/** The agent is idle if it used less than this share of one CPU for this long. */
const IDLE_WINDOW_MS = 500;
const IDLE_SHARE = 0.1;
/** The agent has received a change after this time. */
const RECEIVED_AFTER_MS = 1000;
const TICK_MS = 10; // USER_HZ

/** CPU time of a process and of its exited children, in ticks (proc_pid_stat(5)). */
function readStat(id: string): { readonly parent: number; readonly own: number; readonly ended: number } {
  try {
    const stat = readFileSync(`/proc/${id}/stat`, "utf8");
    const fields = stat
      .slice(stat.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
    const [parent = 0, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map(
      (i) => fields[i],
    );
    return { parent, own: user + system, ended: endedUser + endedSystem };
  } catch {
    return { parent: 0, own: 0, ended: 0 }; // it has exited
  }
}

const WEB_POD = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web", namespace: "ns1", labels: { app: "web" } },
  spec: { nodeName: "node-a", serviceAccountName: "default", containers: [{ name: "main", image: "web:v1" }] },
  status: { phase: "Running", podIP: "10.65.0.2", podIPs: [{ ip: "10.65.0.2" }] },
} as const;

/** Distinct prefixes all over the address space: seven of ten are single addresses, as in threat feeds. */
export function feedPrefixes(count: number, lengths: "mixed" | "hosts" = "mixed"): string[] {
  const prefixes = new Set<string>();
  for (let n = 1; prefixes.size < count; n++) {
    const value = Math.imul(n, 2654435761) >>> 0; // a permutation of all addresses
    const length = lengths === "hosts" || n % 10 < 7 ? 32 : 20 + (n % 12);
    const masked = length === 32 ? value : Math.floor(value / 2 ** (32 - length)) * 2 ** (32 - length);
    prefixes.add(`${masked >>> 24}.${(masked >>> 16) & 255}.${(masked >>> 8) & 255}.${masked & 255}/${length}`);
  }
  return [...prefixes];
}
