// A lab's Kubernetes cluster as an administrator sees it: kubectl beside the API server, and the nodes.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { delay } from "../../lib/retry.ts";
import { baseEnvironment } from "../host.ts";
import type { Lab } from "../lab.ts";
import { Authority } from "./authority.ts";
import { inFabric } from "./control-plane.ts";
import { KubernetesHost } from "./host.ts";
import type { NodePlace } from "./node-programs.ts";
import { programPath } from "./programs.ts";

export class KubernetesCluster {
  constructor(readonly lab: Lab) {}

  get address(): string {
    return bare(this.lab.plan.control.addresses[0]);
  }
  get authority(): Authority {
    return new Authority(join(this.lab.folder.path, "pki"));
  }
  /** Of the administrator. */
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

  /** The command line of kubectl for this cluster. */
  kubectlCommand(args: readonly string[]): readonly [string, ...string[]] {
    return inFabric(this.lab.folder, [programPath("kubectl"), `--kubeconfig=${this.kubeconfig}`, ...args]);
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
      ...(input === undefined ? {} : { input }),
    });
    return { code: result.status ?? 1, stdout: result.stdout, stderr: result.stderr };
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

  async until(what: string, holds: () => boolean, withinMs: number): Promise<void> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      let reason = "";
      try {
        if (holds()) return;
      } catch (error) {
        reason = error instanceof Error ? `: ${error.message}` : "";
      }
      if (performance.now() > deadline)
        throw new Error(`not within ${withinMs / 1000} s: ${what}${reason} (logs: ${this.lab.folder.log("*")})`);
      await delay(100);
    }
  }
}

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

const bare = (network: string | undefined): string => network?.split("/")[0] ?? "";
