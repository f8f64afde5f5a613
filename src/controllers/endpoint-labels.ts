// Labels of pods follow them to their workload endpoints: the CNI plugin writes those when the pod starts, and is not
// told of what changes later. Endpoints are neither made nor removed here.
import { type Client, Conflict, Informer, type KubeApi, type KubeObject, NotFound } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { isWorkloadPod, type Labels, type Resource, type SpecOf, workloadEndpointFromPod } from "../model/index.ts";
import { sameJson } from "./same-json.ts";
import { every, WorkQueue } from "./work-queue.ts";
import { updateLeniently } from "./write.ts";

type EndpointSpec = SpecOf<"WorkloadEndpoint">;

/** What a pod says of its endpoint. */
interface PodFacts {
  readonly endpoint: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly serviceAccountName?: string;
}

export interface EndpointLabelsOptions {
  readonly api: KubeApi;
  readonly client: Client;
  readonly log: Logger;
  readonly reconcilerPeriodMs?: number;
  readonly workers?: number;
}

export class EndpointLabels {
  readonly #options: EndpointLabelsOptions;
  readonly #pods: Informer<PodFacts | undefined>;
  readonly #queue: WorkQueue;
  /** From `namespace/endpoint` to the pod's key. */
  readonly #podOf = new Map<string, string>();

  constructor(options: EndpointLabelsOptions) {
    this.#options = options;
    this.#pods = new Informer({
      api: options.api,
      path: "/api/v1/pods",
      keep: factsOf,
      log: options.log,
    });
    this.#queue = new WorkQueue({
      name: "workloadendpoint",
      work: (key, signal) => this.#write(key, signal),
      log: options.log,
      ...(options.workers === undefined ? {} : { workers: options.workers }),
    });
    this.#pods.listen(({ key, before, after }) => {
      if (after === undefined) {
        if (before !== undefined) this.#podOf.delete(placeOf(before));
        return;
      }
      this.#podOf.set(placeOf(after), key);
      if (before === undefined || !sameJson(before, after)) this.#queue.add(key);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { reconcilerPeriodMs } = this.#options;
    await Promise.all([
      this.#pods.run(signal),
      this.#queue.run(signal),
      ...(reconcilerPeriodMs === undefined ? [] : [every(reconcilerPeriodMs, signal, () => this.#reconcile(signal))]),
    ]);
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    if (!this.#pods.hasSynced) return;
    const { client, log } = this.#options;
    try {
      for (const endpoint of (await client.list({ kind: "WorkloadEndpoint" }, { signal })).items) {
        const key = this.#podOf.get(`${endpoint.metadata.namespace}/${endpoint.metadata.name}`);
        const pod = key === undefined ? undefined : this.#pods.get(key);
        if (key !== undefined && pod !== undefined && changed(endpoint, pod) !== undefined) this.#queue.add(key);
      }
    } catch (error) {
      if (!signal.aborted) log.warn("cannot compare endpoints with their pods", { error: describeError(error) });
    }
  }

  async #write(key: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    const pod = this.#pods.get(key);
    if (pod === undefined) return;
    for (let attempt = 0; ; attempt++)
      try {
        const name = { kind: "WorkloadEndpoint", name: pod.endpoint, namespace: pod.namespace } as const;
        const endpoint = changed(await client.get(name, { signal }), pod);
        if (endpoint !== undefined) await updateLeniently(client, endpoint, signal);
        return;
      } catch (error) {
        if (error instanceof NotFound) return; // the plugin will write it with today's labels
        if (!(error instanceof Conflict) || attempt >= 5) throw error;
      }
  }
}

const placeOf = ({ namespace, endpoint }: PodFacts): string => `${namespace}/${endpoint}`;

function factsOf(pod: KubeObject): PodFacts | undefined {
  if (!isWorkloadPod(pod)) return undefined;
  try {
    const { metadata, spec } = workloadEndpointFromPod(pod, () => {}, {});
    const { serviceAccountName } = spec;
    return {
      endpoint: metadata.name,
      namespace: metadata.namespace ?? "",
      labels: metadata.labels ?? {},
      ...(serviceAccountName === undefined ? {} : { serviceAccountName }),
    };
  } catch {
    return undefined; // addresses that make no sense: the pod has no endpoint to label
  }
}

/** The endpoint as its pod wants it; undefined when it is so already. */
function changed(endpoint: Resource, pod: PodFacts): Resource | undefined {
  const spec = endpoint.spec as EndpointSpec;
  const { serviceAccountName } = pod;
  if (sameJson(endpoint.metadata.labels ?? {}, pod.labels) && spec.serviceAccountName === serviceAccountName)
    return undefined;
  const { serviceAccountName: _, ...others } = spec;
  return {
    ...endpoint,
    metadata: { ...endpoint.metadata, labels: pod.labels },
    spec: { ...others, ...(serviceAccountName === undefined ? {} : { serviceAccountName }) },
  };
}
