// Copies labels and service account names of pods to their workload endpoints. The CNI plugin writes the endpoint when the pod
// starts and is not notified of later changes. This controller neither creates nor deletes endpoints.
import { type Client, Conflict, Informer, type KubeApi, type KubeObject, NotFound } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import {
  ignoreUnreadable,
  isWorkloadPod,
  type Labels,
  readServiceAccountName,
  type Resource,
  withSpecFields,
  workloadEndpointFromPod,
} from "../model/index.ts";
import { sameJson } from "./same-json.ts";
import { every, WorkQueue } from "./work-queue.ts";
import { updateLeniently } from "./lenient-writes.ts";

/** The fields of a pod that its endpoint copies. */
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
  /** Keys of pods, by `namespace/endpoint`. */
  readonly #podKeys = new Map<string, string>();

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
      workers: options.workers,
    });
    this.#pods.listen(({ key, before, after }) => {
      if (after === undefined) {
        if (before !== undefined) this.#podKeys.delete(endpointKeyOf(before));
        return;
      }
      this.#podKeys.set(endpointKeyOf(after), key);
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
        const key = this.#podKeys.get(`${endpoint.metadata.namespace}/${endpoint.metadata.name}`);
        const pod = key === undefined ? undefined : this.#pods.get(key);
        if (key !== undefined && pod !== undefined && updatedEndpoint(endpoint, pod) !== undefined)
          this.#queue.add(key);
      }
    } catch (error) {
      if (!signal.aborted)
        log.warn("cannot compare workload endpoints with pods, retrying in the next period", {
          error: describeError(error),
        });
    }
  }

  async #write(key: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    const pod = this.#pods.get(key);
    if (pod === undefined) return;
    for (let attempt = 0; ; attempt++)
      try {
        const name = { kind: "WorkloadEndpoint", name: pod.endpoint, namespace: pod.namespace } as const;
        const endpoint = updatedEndpoint(await client.get(name, { signal }), pod);
        if (endpoint !== undefined) await updateLeniently(client, endpoint, signal);
        return;
      } catch (error) {
        if (error instanceof NotFound) return; // the CNI plugin creates the endpoint with the current labels
        if (!(error instanceof Conflict) || attempt >= 5) throw error;
      }
  }
}

const endpointKeyOf = ({ namespace, endpoint }: PodFacts): string => `${namespace}/${endpoint}`;

function factsOf(pod: KubeObject): PodFacts | undefined {
  if (!isWorkloadPod(pod)) return undefined;
  try {
    const { metadata, spec } = workloadEndpointFromPod(pod, () => {}, {});
    const { serviceAccountName } = spec;
    return {
      endpoint: metadata.name,
      namespace: metadata.namespace ?? "",
      labels: metadata.labels ?? {},
      serviceAccountName,
    };
  } catch {
    return undefined; // invalid addresses: the pod has no endpoint
  }
}

/** @returns the endpoint with the labels and service account of the pod; undefined if it already has them */
function updatedEndpoint(endpoint: Resource, pod: PodFacts): Resource | undefined {
  const { serviceAccountName } = pod;
  const before = readServiceAccountName(endpoint, ignoreUnreadable);
  if (sameJson(endpoint.metadata.labels ?? {}, pod.labels) && before === serviceAccountName) return undefined;
  return {
    ...withSpecFields(endpoint, { serviceAccountName }),
    metadata: { ...endpoint.metadata, labels: pod.labels },
  };
}
