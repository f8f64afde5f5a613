// Sends numbered pings between pods, so that lost ones can be counted.
import { spawn } from "node:child_process";
import type { LabPod } from "../../../src/lab/folder.ts";
import type { Lab } from "../../../src/lab/lab.ts";
import { podNamespace } from "../../../src/lab/pods.ts";

const INTERVAL_S = 0.05;

export class Pings implements AsyncDisposable {
  readonly #flows: readonly { readonly name: string; readonly seen: Set<number>; stop(): Promise<void> }[];

  /** Starts pings from all pods of the lab to all pods on other hosts, in each family; or from some pods to one pod. */
  constructor(lab: Lab, some?: { readonly from: readonly LabPod[]; readonly to: LabPod }) {
    const { pods } = lab.record;
    this.#flows = (some?.from ?? pods).flatMap((from) =>
      (some === undefined ? pods.filter((to) => to.node !== from.node) : [some.to]).flatMap((to) =>
        to.addresses.map((address) => start(lab, from, to.name, address)),
      ),
    );
  }

  get flows(): number {
    return this.#flows.length;
  }

  /** Number of replies of the flow with the fewest replies. */
  get least(): number {
    return Math.min(...this.#flows.map(({ seen }) => seen.size));
  }

  /** Waits until each flow has this many more replies. */
  more(count: number, withinMs = 30_000): Promise<void> {
    return this.moreOf(count, () => true, withinMs);
  }

  /** The same for some flows, with names `from to address`. */
  async moreOf(count: number, isMeant: (name: string) => boolean, withinMs = 30_000): Promise<void> {
    const flows = this.#flows.filter(({ name }) => isMeant(name));
    const wanted = flows.map(({ seen }) => Math.max(0, ...seen) + count);
    const deadline = performance.now() + withinMs;
    while (flows.some(({ seen }, i) => Math.max(0, ...seen) < (wanted[i] ?? 0))) {
      if (performance.now() > deadline) throw new Error(`pings stopped: ${JSON.stringify(this.lost())}`);
      await Bun.sleep(20);
    }
  }

  /** Missing numbers between the first and the last reply, by flow. */
  lost(): Record<string, readonly number[]> {
    const missing = this.#flows.map(({ name, seen }) => {
      const last = Math.max(0, ...seen);
      const first = Math.min(...seen);
      return [name, Array.from({ length: last }, (_, i) => i + 1).filter((n) => n > first && !seen.has(n))] as const;
    });
    return Object.fromEntries(missing.filter(([, numbers]) => numbers.length > 0));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#flows.map((flow) => flow.stop()));
  }
}

function start(lab: Lab, from: Lab["record"]["pods"][number], to: string, address: string) {
  const seen = new Set<number>();
  const [file, ...args] = lab
    .host(from.node)
    .enter(["ip", "netns", "exec", podNamespace(from), "ping", "-n", "-i", String(INTERVAL_S), address]);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "ignore"] });
  let rest = "";
  child.stdout.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, number] = /bytes from .* icmp_seq=(\d+)/.exec(line) ?? [];
      if (number !== undefined) seen.add(Number(number));
    }
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return { name: `${from.name} ${to} ${address}`, seen, stop };
}
