// The controllers around nodes and addresses, and the views of the cluster they share. None waits for another.
import { type Client, type Datastore, Informer, type KubeApi, type KubeObject } from "../datastore/index.ts";
import { Ipam } from "../ipam/index.ts";
import type { Logger } from "../lib/log.ts";
import type { MetricsRegistry } from "../lib/metrics.ts";
import type { RunningConfig } from "./configuration.ts";
import type { Feed } from "./feed.ts";
import { HostEndpoints } from "./host-endpoints/controller.ts";
import { AddressCollector } from "./ipam-gc/collector.ts";
import { Ledger } from "./ipam-gc/ledger.ts";
import { KubeVirtMachines } from "./ipam-gc/machines.ts";
import { AddressMetrics } from "./ipam-gc/metrics.ts";
import { podFacts } from "./ipam-gc/pod-facts.ts";
import { NodeDeletion } from "./nodes/deletion.ts";
import type { KubernetesNode } from "./nodes/kubernetes-name.ts";
import { NodeLabels } from "./nodes/labels.ts";

export interface NodeControllerParts {
  readonly config: RunningConfig;
  readonly feed: Feed;
  readonly usePodCidr: boolean;
  readonly store: Datastore;
  readonly api: KubeApi;
  readonly client: Client;
  readonly log: Logger;
  readonly registry: MetricsRegistry;
  readonly batchMs?: number | undefined;
}

export function startNodeControllers(parts: NodeControllerParts, signal: AbortSignal): Promise<void>[] {
  const { config, feed, usePodCidr, store, api, client, log, registry, batchMs } = parts;
  if (config.node === undefined) return [];
  const kubernetesNodes = new Informer<KubernetesNode>({
    api,
    path: "/api/v1/nodes",
    keep: (object: KubeObject) => ({ labels: object.metadata.labels ?? {} }),
    log,
  });
  const running: { run(signal: AbortSignal): Promise<void> }[] = [];
  running.push(new HostEndpoints({ client, feed, settings: config.node.hostEndpoints, log }));
  if (store.name !== "kubernetes") {
    running.push(new NodeDeletion({ api, client, feed, kubernetesNodes, log }));
    if (config.node.syncLabels)
      running.push(
        new NodeLabels({ client, feed, kubernetesNodes, log, ...(batchMs === undefined ? {} : { settleMs: batchMs }) }),
      );
  }
  if (!usePodCidr) {
    const pods = new Informer({ api, path: "/api/v1/pods", keep: podFacts, log });
    const ledger = new Ledger();
    const metrics = new AddressMetrics(registry, feed, ledger);
    const collector = new AddressCollector({
      ledger,
      feed,
      store,
      ipam: new Ipam({ datastore: store, log }),
      api,
      pods,
      kubernetesNodes,
      machines: new KubeVirtMachines(api),
      graceMs: config.node.leakGraceMs,
      log,
      onReleased: (allocation) => metrics.onReleased(allocation),
    });
    running.push(pods, collector);
  }
  running.push(kubernetesNodes);
  return running.map((part) => part.run(signal));
}
