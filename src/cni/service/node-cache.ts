// Caches what an ADD reads, by list-and-watch, so that an ADD does not read the datastore: pools, reservations, IPAM
// configuration, the node, its block affinities, the datastore's readiness, and the profiles of networks without Kubernetes
// policy. On Kubernetes also the node's pods, their endpoints and the namespaces.
//
// The cache may be outdated. A command that would fail because of a cached value reads the datastore first.
import { type Datastore, Informer, type KubeApi, type KubeObject, WatchedEntries } from "../../datastore/index.ts";
import { AssignmentCache } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { isDatastoreReady, type StoredQuery, workloadEndpointName, workloadEndpointPrefix } from "../../model/index.ts";
import type { StoredEndpoint, WorkloadEndpoint } from "../attach/endpoint.ts";
import { type EndpointIdentity, nameFields } from "../request/identity.ts";
import type { KubernetesNamespace, KubernetesPod } from "../kubernetes/api.ts";

/** The last received state of a pod. */
export interface CachedPod {
  readonly pod: KubernetesPod;
  readonly namespace: KubernetesNamespace;
  readonly endpoint: StoredEndpoint;
}

const CLUSTER_INFORMATION = { type: "resource", kind: "ClusterInformation", name: "default" } as const;

export class NodeCache implements AsyncDisposable {
  readonly assignments: AssignmentCache;
  readonly #options: { readonly store: Datastore; readonly log: Logger };
  readonly #entries: WatchedEntries;
  /** The endpoints of the node's pods, on Kubernetes. */
  readonly #podEndpoints: StoredQuery | undefined;
  readonly #profiles = new Map<string, WatchedEntries>();
  readonly #pods: Informer<KubeObject> | undefined;
  readonly #namespaces: Informer<KubeObject> | undefined;
  readonly #aborter = new AbortController();
  readonly #running: Promise<void>[] = [];

  /** @param options.api set if the datastore is Kubernetes */
  constructor(node: string, options: { readonly store: Datastore; readonly log: Logger; readonly api?: KubeApi }) {
    this.#options = options;
    const { store, api, log } = options;
    const endpoints = { kind: "WorkloadEndpoint", namePrefix: workloadEndpointPrefix({ node, orchestrator: "k8s" }) };
    this.#podEndpoints = api === undefined ? undefined : ({ type: "resource", ...endpoints } as StoredQuery);
    const ofPods = this.#podEndpoints === undefined ? [] : [this.#podEndpoints];
    const { type, kind } = CLUSTER_INFORMATION;
    this.#entries = new WatchedEntries(store, [{ type, kind }, ...AssignmentCache.queriesFor(node), ...ofPods], log);
    this.assignments = new AssignmentCache(node, this.#entries);
    this.#start(this.#entries);
    if (api === undefined) return;
    const keep = (object: KubeObject) => object;
    this.#pods = new Informer({ api, path: "/api/v1/pods", only: { node }, keep, log });
    this.#namespaces = new Informer({ api, path: "/api/v1/namespaces", keep, log });
    this.#start(this.#pods);
    this.#start(this.#namespaces);
  }

  get isInSync(): boolean {
    return this.#entries.isInSync;
  }

  /** False if the datastore is not ready, or if that is not known. */
  get isDatastoreReady(): boolean {
    const information = this.#entries.get(CLUSTER_INFORMATION)?.value;
    return this.isInSync && information !== undefined && isDatastoreReady(information);
  }

  /** False if the profile does not exist, or if that is not known. The first call starts to watch the profile. */
  hasProfile(name: string): boolean {
    const key = { type: "resource", kind: "Profile", name } as const;
    let entries = this.#profiles.get(name);
    if (entries === undefined) {
      entries = new WatchedEntries(this.#options.store, [key], this.#options.log);
      this.#profiles.set(name, entries);
      this.#start(entries);
    }
    return entries.isInSync && entries.get(key) !== undefined;
  }

  /** Returns undefined if the pod with this UID is not cached, or if pod and endpoint are cached in different revisions. */
  cachedPod(identity: EndpointIdentity, podUid: string | undefined): CachedPod | undefined {
    if (podUid === undefined || !this.isInSync) return undefined;
    const pod = this.#pods?.get(`${identity.namespace}/${identity.pod}`);
    const namespace = this.#namespaces?.get(identity.namespace);
    const name = workloadEndpointName(nameFields({ ...identity, endpoint: "eth0" }));
    const key = { type: "resource", kind: "WorkloadEndpoint", namespace: identity.namespace, name } as const;
    const stored = this.#entries.get(key);
    if (pod === undefined || namespace === undefined || stored === undefined) return undefined;
    if (pod.metadata.uid !== podUid || stored.revision !== pod.metadata.resourceVersion) return undefined;
    return {
      pod: pod as unknown as KubernetesPod,
      namespace: namespace as unknown as KubernetesNamespace,
      endpoint: { stored, endpoint: stored.value as WorkloadEndpoint },
    };
  }

  /** Returns the endpoints of pods that have this interface; undefined if that is not known. */
  endpointsOf(interfaceName: string): readonly WorkloadEndpoint[] | undefined {
    if (this.#podEndpoints === undefined || !this.isInSync) return undefined;
    const endpoints = this.#entries.list(this.#podEndpoints).map(({ value }) => value as unknown as WorkloadEndpoint);
    return endpoints.filter(({ spec }) => spec.interfaceName === interfaceName);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await Promise.allSettled(this.#running);
  }

  #start(loop: { run(signal: AbortSignal): Promise<void> }): void {
    this.#running.push(loop.run(this.#aborter.signal));
  }
}
