// Represents an existing lab: its record, its plan, its hosts and pods.
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { ProbeEndpoint } from "../kernel/index.ts";
import type { Resource } from "../model/index.ts";
import { LabFolder, type LabPod, type LabRecord, listLabs } from "./folder.ts";
import { LabHost } from "./host.ts";
import { KubernetesCluster } from "./kubernetes/cluster.ts";
import { KubernetesHost } from "./kubernetes/host.ts";
import { clusterPods, podNamespaceNames } from "./kubernetes/pods.ts";
import { type LabOptions, InvalidRequest } from "./options.ts";
import { type LabPlan, planLab } from "./plan.ts";
import { parsePodName, podNamespace } from "./pods.ts";
import { namespaceFolderOf } from "./process.ts";
import { datastoreEnvironment, rolePath } from "./programs.ts";

/** The recorded fault of `break datastore`. */
export const DATASTORE_FAULT = "datastore";

export class Lab {
  readonly plan: LabPlan;
  constructor(
    readonly folder: LabFolder,
    public record: LabRecord,
  ) {
    this.plan = planLab(record.options);
  }

  static open(name: string): Lab {
    const folder = new LabFolder(name);
    const record = folder.read();
    if (record === undefined) {
      const others = listLabs();
      throw new InvalidRequest(
        `lab ${name} does not exist; ${others.length === 0 ? "create it with calico lab up" : `existing labs: ${others.join(", ")} (--name)`}`,
      );
    }
    return new Lab(folder, record);
  }

  get options(): LabOptions {
    return this.record.options;
  }
  host(name: string): LabHost {
    if (name === "")
      throw new InvalidRequest(`NODE is missing; hosts of lab ${this.folder.name}: ${this.hostNames.join(", ")}`);
    if (!this.hostNames.includes(name))
      throw new InvalidRequest(`lab ${this.folder.name} has no host ${name}; its hosts: ${this.hostNames.join(", ")}`);
    return this.options.kubelets ? new KubernetesHost(this.folder, name) : new LabHost(this.folder, name);
  }
  get hostNames(): string[] {
    return [...this.plan.nodes, ...this.plan.routers].map((host) => host.name);
  }

  /** Undefined in a lab without kubelets. */
  get cluster(): KubernetesCluster | undefined {
    return this.options.kubelets ? new KubernetesCluster(this) : undefined;
  }

  /** While the API server is stopped by `break datastore`, the pods that it had before. */
  get pods(): readonly LabPod[] {
    const { cluster } = this;
    return cluster === undefined || this.record.faults.includes(DATASTORE_FAULT)
      ? this.record.pods
      : clusterPods(cluster);
  }

  pod(text: string): LabPod {
    const { namespace, name } = parsePodName(text);
    const found = this.pods.filter((pod) => pod.name === name && (!text.includes("/") || pod.namespace === namespace));
    const [pod, second] = found;
    if (pod === undefined)
      throw new InvalidRequest(
        `lab ${this.folder.name} has no pod or host named ${text}; see calico lab pod list and calico lab status`,
      );
    if (second !== undefined)
      throw new InvalidRequest(`pod ${text} exists in several namespaces; use NAMESPACE/${text}`);
    return pod;
  }

  update(change: Partial<LabRecord>): void {
    this.record = { ...this.record, ...change };
    this.folder.write(this.record);
  }

  /** Runs calicoctl on the first node. */
  calicoctl(args: readonly string[], input?: string): string {
    const [first] = this.plan.nodes;
    if (first === undefined) throw new InvalidRequest(`lab ${this.folder.name} has no nodes`);
    const result = this.host(first.name).run([rolePath("calicoctl"), ...args], {
      environment: datastoreEnvironment(this.options, this.plan),
      input,
    });
    if (result.code !== 0) throw new Error(`calicoctl ${args.join(" ")}: ${(result.stderr || result.stdout).trim()}`);
    return result.stdout;
  }

  apply(resources: readonly Resource[]): void {
    if (resources.length > 0) this.calicoctl(["apply", "-f", "-"], JSON.stringify(resources));
  }

  /** Returns the name of each pod's network namespace on its host. */
  namespaceNames(pods: readonly LabPod[]): ReadonlyMap<LabPod, string> {
    const { cluster } = this;
    return cluster === undefined
      ? new Map(pods.map((pod) => [pod, podNamespace(pod)]))
      : podNamespaceNames(cluster, pods);
  }

  /** Opens the network namespaces of pods; disposing the result closes them. */
  openPods(pods: readonly LabPod[]): { readonly targets: ReadonlyMap<LabPod, ProbeEndpoint> } & Disposable {
    const targets = new Map<LabPod, ProbeEndpoint>();
    const close = () => {
      for (const { namespace } of targets.values()) closeSync(namespace);
    };
    try {
      for (const [pod, name] of this.namespaceNames(pods)) {
        const holder = this.host(pod.node).holder;
        if (holder === undefined) throw new Error(`host ${pod.node} is down; calico lab up`);
        const namespace = openSync(join(namespaceFolderOf(holder.pid), name), "r");
        targets.set(pod, { namespace, name: `${pod.namespace}/${pod.name}` });
      }
    } catch (error) {
      close();
      throw error;
    }
    return { targets, [Symbol.dispose]: close };
  }
}
