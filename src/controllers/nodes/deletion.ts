// Removes nodes of ours whose node of Kubernetes is gone, with everything that was theirs. Needed where Calico's datastore
// is not Kubernetes; nodes that were never Kubernetes' are left alone.
import { type Client, type Informer, isObjectMissing, type KubeApi, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { Feed } from "../feed.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { type KubernetesNode, kubernetesName } from "./kubernetes-name.ts";

export interface NodeDeletionOptions {
  readonly api: KubeApi;
  readonly client: Client;
  readonly feed: Feed;
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly log: Logger;
  /** All are looked at this often, should a removal have failed for good. */
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
      if (after === undefined) this.#queueFor((kubernetes) => kubernetes === key);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { feed, kubernetesNodes, fullPassMs = FULL_PASS_MS } = this.#options;
    const lookAtAll = () => {
      if (feed.isInSync && kubernetesNodes.hasSynced) this.#queueFor((kubernetes) => !kubernetesNodes.has(kubernetes));
    };
    const started = Promise.all([feed.inSync, kubernetesNodes.synced]).then(lookAtAll);
    started.catch(() => {});
    await Promise.all([this.#queue.run(signal), every(fullPassMs, signal, lookAtAll)]);
  }

  #queueFor(isMeant: (kubernetesName: string) => boolean): void {
    for (const [name, node] of this.#options.feed.nodes) {
      const kubernetes = kubernetesName(node);
      if (kubernetes !== undefined && isMeant(kubernetes)) this.#queue.add(name);
    }
  }

  async #check(name: string, signal: AbortSignal): Promise<void> {
    const { feed, kubernetesNodes, client, log } = this.#options;
    const node = feed.nodes.get(name);
    const kubernetes = node === undefined ? undefined : kubernetesName(node);
    if (kubernetes === undefined || kubernetesNodes.has(kubernetes)) return;
    if (await this.#exists(kubernetes, signal)) return;
    log.info("a node of Kubernetes is gone; removing ours with what is its own", { node: name, kubernetes });
    try {
      await client.delete({ kind: "Node", name }, { signal });
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }

  /** The informer may be behind: a node's removal is worth a question. */
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
