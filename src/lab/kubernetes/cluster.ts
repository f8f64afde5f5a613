// Provides administrator access to a lab's Kubernetes cluster: kubectl and the nodes.
import { execFile, spawnSync } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { delay } from "../../lib/retry.ts";
import { FABRIC } from "../fabric.ts";
import type { LabFolder } from "../folder.ts";
import { baseEnvironment } from "../host.ts";
import type { Lab } from "../lab.ts";
import { Authority } from "./authority.ts";
import { type ControlPlane, inNamespace } from "./control-plane.ts";
import { KubernetesHost } from "./host.ts";
import type { NodePlace } from "./node-programs.ts";
import { programPath } from "./programs.ts";

export class KubernetesCluster implements ControlPlane {
  constructor(readonly lab: Lab) {}

  get folder(): LabFolder {
    return this.lab.folder;
  }
  /**
   * With kubelets, the control plane runs on the first node, as with kubeadm: there, the API server can use Calico's routes to
   * pods and kube-proxy's rules for services, which webhooks and proxied requests need.
   */
  get address(): string {
    const { plan, options } = this.lab;
    return bare((options.kubelets ? plan.nodes[0]?.interfaces[0]?.addresses : plan.control.addresses)?.[0]);
  }
  get namespace(): string {
    return this.folder.namespace(this.lab.options.kubelets ? (this.lab.plan.nodes[0]?.name ?? FABRIC) : FABRIC);
  }
  get authority(): Authority {
    return new Authority(join(this.lab.folder.path, "pki"));
  }
  /** The administrator's kubeconfig. */
  get kubeconfig(): string {
    return join(this.lab.folder.path, "pki", "admin.kubeconfig");
  }
  get places(): NodePlace[] {
    return this.lab.plan.nodes.map(({ name, interfaces }) => ({
      host: new KubernetesHost(this.lab.folder, name),
      address: bare(interfaces[0]?.addresses[0]),
      apiServerAddress: this.address,
    }));
  }

  /** The command line of kubectl. Labs use the same server addresses, so each needs its own discovery cache. */
  kubectlCommand(args: readonly string[]): readonly [string, ...string[]] {
    const own = [`--kubeconfig=${this.kubeconfig}`, `--cache-dir=${join(this.folder.path, "kubectl-cache")}`];
    return inNamespace(this, [programPath("kubectl"), ...own, ...args]);
  }

  kubectl(args: readonly string[], input?: string): string {
    const result = this.tryKubectl(args, input);
    if (result.code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${(result.stderr || result.stdout).trim()}`);
    return result.stdout;
  }

  tryKubectl(args: readonly string[], input?: string) {
    const [file, ...words] = this.kubectlCommand(args);
    const result = spawnSync(file, words, {
      encoding: "utf8",
      env: baseEnvironment(),
      maxBuffer: 256 * 1024 * 1024,
      input,
    });
    return { code: result.status ?? 1, stdout: result.stdout, stderr: result.stderr };
  }

  /** Waits until all pods of a workload of kube-system are replaced and ready. */
  async rolledOut(workload: string, withinMs: number): Promise<void> {
    const args = ["rollout", "status", "--namespace=kube-system", `--timeout=${withinMs / 1000}s`, workload];
    const [file, ...words] = this.kubectlCommand(args);
    await promisify(execFile)(file, words, { env: baseEnvironment() });
  }

  get<T>(args: readonly string[]): T {
    return JSON.parse(this.kubectl(["get", ...args, "-o", "json"])) as T;
  }

  /** Names of the nodes that are Ready. */
  readyNodes(): string[] {
    const { items } = this.get<{ items: readonly NodeObject[] }>(["nodes"]);
    const isReady = ({ status }: NodeObject) =>
      (status.conditions ?? []).some(({ type, status: value }) => type === "Ready" && value === "True");
    return items.filter(isReady).map(({ metadata }) => metadata.name);
  }

  async until(condition: string, holds: () => boolean, withinMs: number): Promise<void> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      let reason = "";
      try {
        if (holds()) return;
      } catch (error) {
        reason = error instanceof Error ? `: ${error.message}` : "";
      }
      if (performance.now() > deadline)
        throw new Error(
          `timed out after ${withinMs / 1000} s waiting until ${condition}${reason} (logs: ${this.lab.folder.log("*")})`,
        );
      await delay(100);
    }
  }
}

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

const bare = (network: string | undefined): string => network?.split("/")[0] ?? "";
