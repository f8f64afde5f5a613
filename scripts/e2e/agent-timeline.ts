// Records when the calico-node pod of each node ends and becomes ready during a rolling update, as reported by the API server.
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
      createInterface({ input: this.#child.stdout }).on("line", (line) => this.addLine(line, sinceStartMs()));
  }

  addLine(line: string, atMs: number): void {
    const change = readChange(line, this.#states);
    if (change !== undefined) this.events.push({ atMs, text: change });
  }

  [Symbol.dispose](): void {
    this.#child.kill("SIGKILL");
  }
}

/** Returns the new state of a pod in a line of the watch; undefined if it has not changed. */
export function readChange(line: string, states: Map<string, string>): string | undefined {
  const [node = "", pod = "", ready = "", ends = ""] = line.trim().split(/\s+/);
  if (pod === "") return undefined;
  const state = ends !== "<none>" && ends !== "" ? "is terminating" : ready === "True" ? "is ready" : "is not ready";
  if (states.get(pod) === state) return undefined;
  states.set(pod, state);
  return `${node}: ${pod} ${state}`;
}
