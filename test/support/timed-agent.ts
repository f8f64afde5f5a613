// A node agent in a network namespace whose event loop, CPU time and health port are watched, with one workload that a
// policy selects. For tests and benchmarks of large sets of prefixes.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Nft } from "../../src/kernel/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { TestNamespace } from "../functional/kernel/namespace.ts";
import { FelixProcess } from "./felix-process.ts";
import type { Timings } from "./loop-timer.ts";

export type TimedMode = "nftables" | "iptables";

export interface Measured extends Timings {
  /** From the write to the datastore until the kernel has the change. */
  readonly wallMs: number;
  /** The longest that a liveness probe took; infinite if one was not answered. */
  readonly slowestProbeMs: number;
}

const FEED_LABELS = { feed: "threats" };

export class TimedAgent implements AsyncDisposable {
  readonly #space: TestNamespace;
  readonly #felix: FelixProcess;
  readonly #mode: TimedMode;
  readonly #nft: Nft;
  #stopProbes: (() => void) | undefined;
  #probeTimesMs: number[] = [];

  private constructor(space: TestNamespace, felix: FelixProcess, mode: TimedMode) {
    this.#space = space;
    this.#felix = felix;
    this.#mode = mode;
    this.#nft = space.enter(() => new Nft());
  }

  static async start(mode: TimedMode): Promise<TimedAgent> {
    const agent = new TimedAgent(new TestNamespace("timed"), await FelixProcess.prepare(), mode);
    try {
      await agent.#start();
      return agent;
    } catch (error) {
      await agent[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const felix = this.#felix;
    await felix.put(
      "WorkloadEndpoint",
      "node--a-k8s-web-eth0",
      {
        ...{ node: "node-a", orchestrator: "k8s", pod: "web", endpoint: "eth0", interfaceName: "cali0" },
        ...{ ipNetworks: ["10.65.0.2/32"], profiles: [] },
      },
      { namespace: "default", labels: { "projectcalico.org/namespace": "default" } },
    );
    await this.putPolicy("block-feed", { selector: "feed == 'threats'" });
    // Mounts of its own: `/var/lib/calico` of the host stays as it is.
    const within = ["ip", "netns", "exec", this.#space.name, "sh", "-c", 'mount -t tmpfs calico /var/lib && exec "$@"'];
    felix.start(
      {
        BUN_OPTIONS: `--preload ${join(import.meta.dir, "loop-timer.ts")}`,
        TIMER_SOCKET: this.#socket,
        FELIX_USEINTERNALDATAPLANEDRIVER: "true",
        FELIX_NFTABLESMODE: this.#mode === "nftables" ? "Enabled" : "Disabled",
        FELIX_IPTABLESBACKEND: "legacy",
        FELIX_FAILSAFEINBOUNDHOSTPORTS: "none",
      },
      [],
      [...within, "sh"],
    );
    await eventually(() => {
      if (!felix.isRunning) throw new Error(`the agent ended:\n${felix.output}`);
      return felix.output.includes("first round applied");
    });
    this.#stopProbes = this.#startProbes();
  }

  get output(): string {
    return this.#felix.output;
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
      if (!this.#felix.isRunning) throw new Error(`the agent ended:\n${this.#felix.output}`);
      return this.#mode === "iptables" ? this.#isIpsetComplete(entries, state) : this.#isNftablesSettled(state);
    }, 120_000);
    await eventually(() => this.#probeTimesMs.length > 0);
    return {
      ...(await this.#timings()),
      wallMs: state.changedAtMs - startMs,
      slowestProbeMs: Math.max(...this.#probeTimesMs),
    };
  }

  #isNftablesSettled(state: { readonly first: number; last: number; changedAtMs: number }): boolean {
    const generation = this.#nft.generation();
    if (generation !== state.last) state.changedAtMs = performance.now();
    state.last = generation;
    return generation !== state.first && performance.now() - state.changedAtMs > SETTLED_MS;
  }

  #isIpsetComplete(entries: number, state: { changedAtMs: number }): boolean {
    const text = this.#space.run("ipset", ["list", "-t"]);
    state.changedAtMs = performance.now();
    return [...text.matchAll(/^Name: cali40s:[^]*?^Number of entries: (\d+)$/gm)].some(
      ([, n]) => Number(n) === entries,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopProbes?.();
    this.#nft[Symbol.dispose]();
    await this.#felix[Symbol.asyncDispose]();
    this.#space[Symbol.dispose]();
  }

  get #socket(): string {
    return join(this.#felix.folder, "timer.sock");
  }

  async #timings(): Promise<Timings> {
    const response = await fetch("http://timer/", { unix: this.#socket });
    return (await response.json()) as Timings;
  }

  #startProbes(): () => void {
    const url = `http://127.0.0.1:${this.#felix.healthPort}/liveness`;
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
const SETTLED_MS = 400;
const PROBE_TIMEOUT_S = 3;

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
