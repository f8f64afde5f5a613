// A lab that exists: what it was asked to be, how it is laid out, what runs in it.
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { ProbeTarget } from "../kernel/index.ts";
import type { Resource } from "../model/index.ts";
import { LabFolder, type LabPod, type LabRecord, listLabs } from "./folder.ts";
import { LabHost } from "./host.ts";
import { KubernetesCluster } from "./kubernetes/cluster.ts";
import { KubernetesHost } from "./kubernetes/host.ts";
import { clusterPods, podNamespaceNames } from "./kubernetes/pods.ts";
import { type LabOptions, InvalidRequest } from "./options.ts";
import { type LabPlan, planLab } from "./plan.ts";
import { parsePodName, podNamespace } from "./pods.ts";
import { namespacesSeenBy } from "./process.ts";
import { datastoreEnvironment, rolePath } from "./programs.ts";

/** How `break datastore` is remembered. */
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
        `there is no lab ${name}; ${others.length === 0 ? "make one with calico lab up" : `there is ${others.join(", ")} (--name)`}`,
      );
    }
    return new Lab(folder, record);
  }

  get options(): LabOptions {
    return this.record.options;
  }
  host(name: string): LabHost {
    if (name === "")
      throw new InvalidRequest(`NODE is missing; lab ${this.folder.name} has ${this.hostNames.join(", ")}`);
    if (!this.hostNames.includes(name))
      throw new InvalidRequest(`lab ${this.folder.name} has no host ${name}; it has ${this.hostNames.join(", ")}`);
    return this.options.kubelets ? new KubernetesHost(this.folder, name) : new LabHost(this.folder, name);
  }
  get hostNames(): string[] {
    return [...this.plan.nodes, ...this.plan.routers].map((host) => host.name);
  }

  /** Undefined in a lab without kubelets. */
  get cluster(): KubernetesCluster | undefined {
    return this.options.kubelets ? new KubernetesCluster(this) : undefined;
  }

  /** While we keep the API server stopped, those it had last. */
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
        `lab ${this.folder.name} has no pod ${text}, and no host of that name; calico lab pod list, calico lab status`,
      );
    if (second !== undefined) throw new InvalidRequest(`pod ${text} is in several namespaces; say NAMESPACE/${text}`);
    return pod;
  }

  update(change: Partial<LabRecord>): void {
    this.record = { ...this.record, ...change };
    this.folder.write(this.record);
  }

  /** calicoctl on the first node, as an operator logged in there would run it. */
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

  /** Each pod's network namespace, by its name on the pod's host. */
  namespaceNames(pods: readonly LabPod[]): ReadonlyMap<LabPod, string> {
    const { cluster } = this;
    return cluster === undefined
      ? new Map(pods.map((pod) => [pod, podNamespace(pod)]))
      : podNamespaceNames(cluster, pods);
  }

  /** Open namespaces of pods, to send packets from and to. Close them with the returned handle. */
  openPods(pods: readonly LabPod[]): { readonly targets: ReadonlyMap<LabPod, ProbeTarget> } & Disposable {
    const targets = new Map<LabPod, ProbeTarget>();
    const close = () => {
      for (const { namespace } of targets.values()) closeSync(namespace);
    };
    try {
      for (const [pod, name] of this.namespaceNames(pods)) {
        const holder = this.host(pod.node).holder;
        if (holder === undefined) throw new Error(`host ${pod.node} is down; calico lab up`);
        const namespace = openSync(join(namespacesSeenBy(holder.pid), name), "r");
        targets.set(pod, { namespace, name: `${pod.namespace}/${pod.name}` });
      }
    } catch (error) {
      close();
      throw error;
    }
    return { targets, [Symbol.dispose]: close };
  }
}
