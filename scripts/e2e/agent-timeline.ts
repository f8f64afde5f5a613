// Which node's agent ended and which came when, as the API server tells it, while a rolling update goes on.
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { baseEnvironment } from "../../src/lab/host.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";

const COLUMNS = {
  node: ".spec.nodeName",
  pod: ".metadata.name",
  ready: '.status.conditions[?(@.type=="Ready")].status',
  ends: ".metadata.deletionTimestamp",
};

export interface AgentEvent {
  readonly atMs: number;
  readonly text: string;
}

export class AgentTimeline implements Disposable {
  readonly events: AgentEvent[] = [];
  readonly #child: ChildProcess;
  readonly #states = new Map<string, string>();

  constructor(cluster: KubernetesCluster, sinceStartMs: () => number) {
    const columns = Object.entries(COLUMNS).map(([name, path]) => `${name}:${path}`);
    const [file, ...args] = cluster.kubectlCommand([
      ...["get", "pods", "--namespace=kube-system", "--selector=k8s-app=calico-node", "--watch", "--no-headers"],
      `--output=custom-columns=${columns.join(",")}`,
    ]);
    this.#child = spawn(file, args, { env: baseEnvironment(), stdio: ["ignore", "pipe", "ignore"] });
    this.#child.on("error", () => {});
    if (this.#child.stdout !== null)
      createInterface({ input: this.#child.stdout }).on("line", (line) => this.take(line, sinceStartMs()));
  }

  take(line: string, atMs: number): void {
    const change = readChange(line, this.#states);
    if (change !== undefined) this.events.push({ atMs, text: change });
  }

  [Symbol.dispose](): void {
    this.#child.kill("SIGKILL");
  }
}

/** What is new in a line of the watch; undefined when nothing is. */
export function readChange(line: string, states: Map<string, string>): string | undefined {
  const [node = "", pod = "", ready = "", ends = ""] = line.trim().split(/\s+/);
  if (pod === "") return undefined;
  const state = ends !== "<none>" && ends !== "" ? "is told to end" : ready === "True" ? "is ready" : "is not ready";
  if (states.get(pod) === state) return undefined;
  states.set(pod, state);
  return `${node}: ${pod} ${state}`;
}
