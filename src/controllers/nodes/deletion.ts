// Deletes a Calico Node, with everything that belongs to it, when its Kubernetes Node is deleted. For the etcd datastore only.
// Nodes that do not belong to Kubernetes are never deleted.
import { type Client, type Informer, isObjectMissing, type KubeApi, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { type KubernetesNode, kubernetesNodeName } from "./kubernetes-name.ts";

export interface NodeDeletionOptions {
  readonly api: KubeApi;
  readonly client: Client;
  readonly cache: DatastoreCache;
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly log: Logger;
  /** Interval at which all nodes are checked, in case a deletion failed after all retries. */
  readonly fullPassMs?: number;
}

const FULL_PASS_MS = 5 * 60_000;

export class NodeDeletion {
  readonly #options: NodeDeletionOptions;
  readonly #queue: WorkQueue;

  constructor(options: NodeDeletionOptions) {
    this.#options = options;
    this.#queue = new WorkQueue({
      name: "node deletion",
      work: (name, signal) => this.#check(name, signal),
      log: options.log,
    });
    options.kubernetesNodes.listen(({ key, after }) => {
      if (after === undefined) this.#queueNodes((kubernetes) => kubernetes === key);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { cache, kubernetesNodes, fullPassMs = FULL_PASS_MS } = this.#options;
    const checkAll = () => {
      if (cache.isInSync && kubernetesNodes.hasSynced)
        this.#queueNodes((kubernetes) => !kubernetesNodes.has(kubernetes));
    };
    const started = Promise.all([cache.inSync, kubernetesNodes.synced]).then(checkAll);
    started.catch(() => {});
    await Promise.all([this.#queue.run(signal), every(fullPassMs, signal, checkAll)]);
  }

  #queueNodes(isSelected: (kubernetesNodeName: string) => boolean): void {
    for (const [name, node] of this.#options.cache.nodes) {
      const kubernetes = kubernetesNodeName(node);
      if (kubernetes !== undefined && isSelected(kubernetes)) this.#queue.add(name);
    }
  }

  async #check(name: string, signal: AbortSignal): Promise<void> {
    const { cache, kubernetesNodes, client, log } = this.#options;
    const node = cache.nodes.get(name);
    const kubernetes = node === undefined ? undefined : kubernetesNodeName(node);
    if (kubernetes === undefined || kubernetesNodes.has(kubernetes)) return;
    if (await this.#exists(kubernetes, signal)) return;
    log.info("deleting a node whose Kubernetes Node is deleted", { node: name, kubernetesNode: kubernetes });
    try {
      await client.delete({ kind: "Node", name }, { signal });
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }

  /** Reads the Kubernetes Node from the API server, because the informer may lag behind. */
  async #exists(name: string, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#options.api.get(`/api/v1/nodes/${encodeURIComponent(name)}`, { signal });
      return true;
    } catch (error) {
      if (isObjectMissing(error)) return false;
      throw error;
    }
  }
}
