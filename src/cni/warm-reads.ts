// What the service knows before it is asked: the pods of its node, namespaces, pools, settings and the node's blocks are
// followed, so that an ADD asks the Kubernetes API for nothing and only writes: the handle, the block, the pod's notes.
// Only for a pod whose present life is known, by its UID and by both readings of it; any other is read as ever.
import { type Datastore, FollowedStore, Informer, type KubeApi, type KubeObject } from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import { workloadEndpointName, workloadEndpointPrefix } from "../model/index.ts";
import { type EndpointIdentity, isLauncher, nameFields } from "./identity.ts";
import type { KubernetesApi, KubernetesNamespace, KubernetesPod } from "./kubernetes-api.ts";

export interface WarmContext {
  readonly store: Datastore;
  readonly kubernetes: () => Promise<KubernetesApi>;
}

export class WarmReads implements AsyncDisposable {
  readonly #aborter = new AbortController();
  readonly #running: Promise<void>[] = [];
  readonly #pods: Informer<KubeObject>;
  readonly #namespaces: Informer<KubeObject>;
  readonly store: FollowedStore;

  constructor(
    readonly node: string,
    options: { readonly store: Datastore; readonly api: KubeApi; readonly log: Logger },
  ) {
    const { store, api, log } = options;
    const { signal } = this.#aborter;
    const resource = (kind: "ClusterInformation" | "IPPool" | "IPReservation") => ({ type: "resource", kind }) as const;
    const endpoints = workloadEndpointPrefix({ node, orchestrator: "k8s" });
    this.store = new FollowedStore(store, {
      follow: [
        resource("ClusterInformation"),
        resource("IPPool"),
        resource("IPReservation"),
        { type: "ipamConfig" },
        { type: "resource", kind: "Node", name: node },
        { type: "resource", kind: "WorkloadEndpoint", namePrefix: endpoints },
        { type: "blockAffinity", host: node, affinityType: "host" },
      ],
      // Written with the revision that was read: a block that others changed meanwhile is refused and read again.
      remember: (key) => key.type === "block",
      log,
    });
    const keep = (object: KubeObject) => object;
    this.#pods = new Informer({ api, path: "/api/v1/pods", only: { node }, keep, log });
    this.#namespaces = new Informer({ api, path: "/api/v1/namespaces", keep, log });
    this.#running.push(this.store.run(signal), this.#pods.run(signal), this.#namespaces.run(signal));
  }

  /** Undefined when this pod must be read from the API server. */
  contextFor(
    identity: EndpointIdentity,
    podUid: string | undefined,
    cold: () => Promise<KubernetesApi>,
  ): WarmContext | undefined {
    // Blocks are remembered, and a machine's addresses may be in a block that another node has written since.
    if (podUid === undefined || !this.store.isInSync || isLauncher(identity)) return undefined;
    const pod = this.#pods.get(`${identity.namespace}/${identity.pod}`);
    const namespace = this.#namespaces.get(identity.namespace);
    const name = workloadEndpointName(nameFields({ ...identity, endpoint: "eth0" }));
    const endpoint = this.store.known({
      type: "resource",
      kind: "WorkloadEndpoint",
      namespace: identity.namespace,
      name,
    });
    if (pod === undefined || namespace === undefined || pod.metadata.uid !== podUid) return undefined;
    if (endpoint?.revision !== pod.metadata.resourceVersion) return undefined;
    const reader = async (): Promise<KubernetesApi> => ({
      pod: async (...asked) =>
        asked[0] === identity.namespace && asked[1] === identity.pod
          ? (pod as unknown as KubernetesPod)
          : (await cold()).pod(...asked),
      namespace: async (asked) =>
        asked === identity.namespace ? (namespace as unknown as KubernetesNamespace) : (await cold()).namespace(asked),
      node: async (asked) => (await cold()).node(asked),
      machine: async (...asked) => (await cold()).machine(...asked),
      machineInstance: async (...asked) => (await cold()).machineInstance(...asked),
      version: async () => (await cold()).version(),
    });
    return { store: this.store, kubernetes: reader };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await Promise.allSettled(this.#running);
  }
}
