// Starts the controllers for nodes and addresses, and the informers that they share. No controller waits for another.
import { type Client, type Datastore, Informer, type KubeApi, type KubeObject } from "../datastore/index.ts";
import { Ipam } from "../ipam/index.ts";
import type { Logger } from "../lib/log/log.ts";
import type { MetricsRegistry } from "../lib/metrics.ts";
import type { RunningConfig } from "./configuration.ts";
import type { DatastoreCache } from "./datastore-cache.ts";
import { HostEndpoints } from "./host-endpoints/controller.ts";
import { AddressCollector } from "./ipam-gc/collector.ts";
import { AllocationIndex } from "./ipam-gc/allocation-index.ts";
import { KubeVirt } from "./ipam-gc/virtual-machines.ts";
import { AddressMetrics } from "./ipam-gc/metrics.ts";
import { podFacts } from "./ipam-gc/pod-facts.ts";
import { NodeDeletion } from "./nodes/deletion.ts";
import type { KubernetesNode } from "./nodes/kubernetes-name.ts";
import { NodeLabels } from "./nodes/labels.ts";

export interface NodeControllerParts {
  readonly config: RunningConfig;
  readonly cache: DatastoreCache;
  readonly usePodCidr: boolean;
  readonly store: Datastore;
  readonly api: KubeApi;
  readonly client: Client;
  readonly log: Logger;
  readonly registry: MetricsRegistry;
  readonly batchMs?: number;
}

export function startNodeControllers(parts: NodeControllerParts, signal: AbortSignal): Promise<void>[] {
  const { config, cache, usePodCidr, store, api, client, log, registry, batchMs } = parts;
  if (config.node === undefined) return [];
  const kubernetesNodes = new Informer<KubernetesNode>({
    api,
    path: "/api/v1/nodes",
    keep: (object: KubeObject) => ({ labels: object.metadata.labels ?? {} }),
    log,
  });
  const running: { run(signal: AbortSignal): Promise<void> }[] = [];
  running.push(new HostEndpoints({ client, cache, settings: config.node.hostEndpoints, log }));
  if (store.name !== "kubernetes") {
    running.push(new NodeDeletion({ api, client, cache, kubernetesNodes, log }));
    if (config.node.syncLabels)
      running.push(new NodeLabels({ client, cache, kubernetesNodes, log, writeDelayMs: batchMs }));
  }
  if (!usePodCidr) {
    const pods = new Informer({ api, path: "/api/v1/pods", keep: podFacts, log });
    const index = new AllocationIndex();
    const metrics = new AddressMetrics(registry, cache, index);
    const collector = new AddressCollector({
      index,
      cache,
      store,
      ipam: new Ipam({ datastore: store, log }),
      api,
      pods,
      kubernetesNodes,
      virtualMachines: new KubeVirt(api),
      graceMs: config.node.leakGraceMs,
      log,
      onReleased: (allocation) => metrics.onReleased(allocation),
    });
    running.push(pods, collector);
  }
  running.push(kubernetesNodes);
  return running.map((part) => part.run(signal));
}
