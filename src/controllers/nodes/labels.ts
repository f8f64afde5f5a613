// Kubernetes' labels on nodes of ours, where the datastore is not Kubernetes. Which labels came from there is noted on
// the node; a label of the user's that one of Kubernetes' hides is noted too, and given back when the other goes.
import { type Client, Conflict, type Informer, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { Labels, Resource } from "../../model/index.ts";
import type { Feed } from "../feed.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { updateLeniently } from "../write.ts";
import { type KubernetesNode, kubernetesName } from "./kubernetes-name.ts";

export const KUBE_LABELS = "projectcalico.org/kube-labels";
export const HIDDEN_LABELS = "projectcalico.org/hidden-labels";
const FULL_PASS_MS = 5 * 60_000;

export interface NodeLabelsOptions {
  readonly client: Client;
  readonly feed: Feed;
  /** With their labels. */
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly log: Logger;
  /** Before a change of Kubernetes' labels is written: several often come together. */
  readonly settleMs?: number;
}

export class NodeLabels {
  readonly #options: NodeLabelsOptions;
  readonly #queue: WorkQueue;
  readonly #known = new Set<string>();
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
        for (const [name, node] of options.feed.nodes) if (kubernetesName(node) === key) this.#queue.add(name);
      }, options.settleMs ?? 1000);
      this.#timers.add(timer);
    });
    options.feed.listen(({ nodes }) => {
      for (const name of nodes) {
        if (!options.feed.nodes.has(name)) this.#known.delete(name);
        else if (!this.#known.has(name)) {
          this.#known.add(name);
          this.#queue.add(name);
        }
      }
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { feed } = this.#options;
    await Promise.all([
      this.#queue.run(signal),
      every(FULL_PASS_MS, signal, () => {
        for (const name of feed.nodes.keys()) this.#queue.add(name);
      }),
    ]);
    for (const timer of this.#timers) clearTimeout(timer);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const { client, kubernetesNodes, log } = this.#options;
    for (let attempt = 0; ; attempt++)
      try {
        const node: Resource = await client.get({ kind: "Node", name }, { signal });
        const kubernetes = kubernetesName(node);
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

/** The node with Kubernetes' labels of today; undefined when it has them. */
export function withKubernetesLabels(
  node: Resource,
  kubernetes: Labels,
  report: (problem: string) => void,
): Resource | undefined {
  const { labels = {}, annotations = {} } = node.metadata;
  if (annotations[KUBE_LABELS] === undefined && Object.keys(kubernetes).length === 0) return undefined;
  const earlier = noted(
    annotations[KUBE_LABELS],
    `annotation ${KUBE_LABELS} is no JSON map; labels that left Kubernetes before may stay`,
    report,
  );
  const hidden = { ...noted(annotations[HIDDEN_LABELS], `annotation ${HIDDEN_LABELS} is no JSON map`, report) };
  const own: Record<string, string> = { ...labels };
  for (const key of Object.keys(earlier)) {
    delete own[key];
    if (Object.hasOwn(kubernetes, key)) continue;
    if (hidden[key] !== undefined) own[key] = hidden[key];
    delete hidden[key];
  }
  for (const [key, value] of Object.entries(kubernetes)) {
    // Only what stood there before Kubernetes said anything was the user's.
    if (own[key] !== undefined && own[key] !== value) hidden[key] = own[key];
    own[key] = value;
  }
  const { [HIDDEN_LABELS]: _, ...others } = annotations;
  const noteOfHidden = Object.keys(hidden).length === 0 ? {} : { [HIDDEN_LABELS]: textOf(hidden) };
  const wanted = { ...others, [KUBE_LABELS]: textOf(kubernetes), ...noteOfHidden };
  if (sameJson(own, labels) && sameJson(wanted, annotations)) return undefined;
  const { labels: _labels, ...metadata } = node.metadata;
  const shown = Object.keys(own).length === 0 ? {} : { labels: own };
  return { ...node, metadata: { ...metadata, ...shown, annotations: wanted } };
}

function noted(text: string | undefined, problem: string, report: (problem: string) => void): Labels {
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

/** Names sorted, `null` for none: as the field's programs write it. */
function textOf(labels: Labels): string {
  const entries = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? "null" : JSON.stringify(Object.fromEntries(entries));
}
