// Copies labels of Kubernetes Nodes to Calico Nodes, for the etcd datastore. One annotation of the Calico Node lists the copied
// labels. If a copied label replaces a label of the user, another annotation stores the user's value, which is restored when the
// Kubernetes label is removed.
import { type Client, Conflict, type Informer, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { Labels, Resource } from "../../model/index.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { updateLeniently } from "../lenient-writes.ts";
import { type KubernetesNode, kubernetesNodeName } from "./kubernetes-name.ts";

export const KUBE_LABELS = "projectcalico.org/kube-labels";
export const HIDDEN_LABELS = "projectcalico.org/hidden-labels";
const FULL_PASS_MS = 5 * 60_000;

export interface NodeLabelsOptions {
  readonly client: Client;
  readonly cache: DatastoreCache;
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly log: Logger;
  /** Delay between a change of labels and the write, because labels often change several at a time. */
  readonly writeDelayMs?: number;
}

export class NodeLabels {
  readonly #options: NodeLabelsOptions;
  readonly #queue: WorkQueue;
  readonly #seenNodes = new Set<string>();
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();

  constructor(options: NodeLabelsOptions) {
    this.#options = options;
    this.#queue = new WorkQueue({
      name: "node labels",
      work: (name, signal) => this.#sync(name, signal),
      log: options.log,
    });
    options.kubernetesNodes.listen(({ key, before, after }) => {
      if (after === undefined || sameJson(before?.labels, after.labels)) return;
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        for (const [name, node] of options.cache.nodes) if (kubernetesNodeName(node) === key) this.#queue.add(name);
      }, options.writeDelayMs ?? 1000);
      this.#timers.add(timer);
    });
    options.cache.listen(({ nodes }) => {
      for (const name of nodes) {
        if (!options.cache.nodes.has(name)) this.#seenNodes.delete(name);
        else if (!this.#seenNodes.has(name)) {
          this.#seenNodes.add(name);
          this.#queue.add(name);
        }
      }
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { cache } = this.#options;
    await Promise.all([
      this.#queue.run(signal),
      every(FULL_PASS_MS, signal, () => {
        for (const name of cache.nodes.keys()) this.#queue.add(name);
      }),
    ]);
    for (const timer of this.#timers) clearTimeout(timer);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const { client, kubernetesNodes, log } = this.#options;
    for (let attempt = 0; ; attempt++)
      try {
        const node: Resource = await client.get({ kind: "Node", name }, { signal });
        const kubernetes = kubernetesNodeName(node);
        const source = kubernetes === undefined ? undefined : kubernetesNodes.get(kubernetes);
        if (source === undefined) return;
        const updated = withKubernetesLabels(node, source.labels, (problem) => log.warn(problem, { node: name }));
        if (updated !== undefined) await updateLeniently(client, updated, signal);
        return;
      } catch (error) {
        if (error instanceof NotFound) return;
        if (!(error instanceof Conflict) || attempt >= 5) throw error;
      }
  }
}

/** @returns the node with the current labels of its Kubernetes Node; undefined if it already has them */
export function withKubernetesLabels(
  node: Resource,
  kubernetes: Labels,
  report: (problem: string) => void,
): Resource | undefined {
  const { labels = {}, annotations = {} } = node.metadata;
  if (annotations[KUBE_LABELS] === undefined && Object.keys(kubernetes).length === 0) return undefined;
  const copiedBefore = parseLabels(
    annotations[KUBE_LABELS],
    `annotation ${KUBE_LABELS} is not a JSON map; labels that were removed in Kubernetes may stay`,
    report,
  );
  const hidden = {
    ...parseLabels(annotations[HIDDEN_LABELS], `annotation ${HIDDEN_LABELS} is not a JSON map`, report),
  };
  const updated: Record<string, string> = { ...labels };
  for (const key of Object.keys(copiedBefore)) {
    delete updated[key];
    if (Object.hasOwn(kubernetes, key)) continue;
    if (hidden[key] !== undefined) updated[key] = hidden[key];
    delete hidden[key];
  }
  for (const [key, value] of Object.entries(kubernetes)) {
    // Copied labels were removed above, so a value that is still here belongs to the user.
    if (updated[key] !== undefined && updated[key] !== value) hidden[key] = updated[key];
    updated[key] = value;
  }
  const { [HIDDEN_LABELS]: _, ...others } = annotations;
  const hiddenAnnotation: Labels = Object.keys(hidden).length === 0 ? {} : { [HIDDEN_LABELS]: formatLabels(hidden) };
  const updatedAnnotations = { ...others, [KUBE_LABELS]: formatLabels(kubernetes), ...hiddenAnnotation };
  if (sameJson(updated, labels) && sameJson(updatedAnnotations, annotations)) return undefined;
  const { labels: _labels, ...metadata } = node.metadata;
  const labelsField = Object.keys(updated).length === 0 ? {} : { labels: updated };
  return { ...node, metadata: { ...metadata, ...labelsField, annotations: updatedAnnotations } };
}

function parseLabels(text: string | undefined, problem: string, report: (problem: string) => void): Labels {
  if (text === undefined || text === "" || text === "null") return {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Labels;
  } catch {
    // falls through
  }
  report(problem);
  return {};
}

/** Sorted by name, and `null` if empty, as Calico writes it. */
function formatLabels(labels: Labels): string {
  const entries = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? "null" : JSON.stringify(Object.fromEntries(entries));
}
