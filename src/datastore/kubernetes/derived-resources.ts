// Derives Calico kinds from objects of Kubernetes: nodes, workload endpoints (from pods), live migrations, and objects
// that Felix reads unchanged, such as Kubernetes NetworkPolicies.
import {
  API_VERSION,
  isWorkloadPod,
  kubernetesNodeFrom,
  liveMigrationFromKubeVirt,
  type KindName,
  type Metadata,
  nodeFromKubernetes,
  parseWorkloadEndpointName,
  podErasure,
  podPatch,
  type ReportProblem,
  type Resource,
  type ResourceKey,
  type StoredQuery,
  workloadEndpointFromPod,
  workloadEndpointName,
} from "../../model/index.ts";
import type { Entry, Stored } from "../datastore.ts";
import { NotFound, Unsupported } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import type { KubeObject } from "./api-client.ts";
import type { Collection, Selection } from "./collection.ts";
import type { Definition } from "./not-served.ts";

type ResourceQuery = Extract<StoredQuery, { readonly type: "resource" }>;

const stored = (value: Resource, object: KubeObject): Stored<ResourceKey> => {
  const { name, namespace } = value.metadata;
  const { resourceVersion = "", uid } = object.metadata;
  return {
    key: { type: "resource", kind: value.kind, name, namespace },
    value,
    revision: resourceVersion,
    uid,
  };
};

/** Nodes: Calico's fields are stored as annotations of the Kubernetes node. */
export class Nodes implements Collection<ResourceKey> {
  readonly kind = "Node";
  constructor(readonly options: { readonly usePodCidr: boolean }) {}

  select(query: StoredQuery): Selection {
    const name = (query as ResourceQuery).name;
    return { path: "/api/v1/nodes", fieldSelector: name === undefined ? undefined : `metadata.name=${name}` };
  }
  keyOf(object: KubeObject): ResourceKey {
    return { type: "resource", kind: "Node", name: object.metadata.name };
  }
  itemPath(key: ResourceKey): string {
    return `/api/v1/nodes/${encodeURIComponent(key.name)}`;
  }
  createPath(key: ResourceKey): string {
    throw new Unsupported("Create", nameOfKey(key), "nodes are created by Kubernetes");
  }
  decode(object: KubeObject): Stored<ResourceKey> {
    return stored(nodeFromKubernetes(object, this.options), object);
  }
  encode(entry: Entry<ResourceKey>): KubeObject {
    throw new Unsupported("Create", nameOfKey(entry.key), "nodes are created by Kubernetes");
  }
  /** Returns the Kubernetes node with the annotations of the Calico node. */
  merge(entry: Entry<ResourceKey>, kubernetes: KubeObject): KubeObject {
    const { annotations } = kubernetesNodeFrom(entry.value, kubernetes);
    const resourceVersion = entry.revision ?? kubernetes.metadata.resourceVersion;
    const metadata = {
      ...kubernetes.metadata,
      annotations,
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    };
    return { ...kubernetes, metadata };
  }
}

/** Workload endpoints: one for each pod that does not use the host's network. */
export class Endpoints implements Collection<ResourceKey> {
  readonly kind = "WorkloadEndpoint";
  constructor(
    readonly report: ReportProblem,
    readonly options: { readonly interfacePrefix?: string },
  ) {}

  select(query: StoredQuery): Selection {
    const { namespace, name, namePrefix } = query as ResourceQuery;
    const path = namespace === undefined ? "/api/v1/pods" : podsPath(namespace);
    const pod = podOf(name) ?? podOf(namePrefix === undefined ? undefined : `${namePrefix.replace(/-$/, "")}-eth0`);
    if (pod !== undefined) return { path, fieldSelector: `metadata.name=${pod}` };
    const node = /^(.*[^-])-k8s-$/.exec(namePrefix ?? "")?.[1]?.replaceAll("--", "-");
    return node === undefined ? { path } : { path, fieldSelector: `spec.nodeName=${node}` };
  }
  /** The CNI plugin has permission to get pods, but not to list them. */
  selectForList(query: StoredQuery): readonly Selection[] {
    const { namespace, name, namePrefix } = query as ResourceQuery;
    const pod = podOf(name) ?? podOf(namePrefix === undefined ? undefined : `${namePrefix.replace(/-$/, "")}-eth0`);
    const selection = this.select(query);
    if (pod === undefined || namespace === undefined) return [selection];
    return [{ ...selection, item: `${selection.path}/${encodeURIComponent(pod)}` }];
  }
  keyOf(object: KubeObject & { readonly spec?: { readonly nodeName?: string } }): ResourceKey | undefined {
    if (!isWorkloadPod(object)) return undefined;
    const { name: pod, namespace = "" } = object.metadata;
    const identity = { node: object.spec?.nodeName ?? "", orchestrator: "k8s", pod, endpoint: "eth0" };
    return { type: "resource", kind: "WorkloadEndpoint", namespace, name: workloadEndpointName(identity) };
  }
  itemPath(key: ResourceKey): string {
    const pod = podOf(key.name);
    if (pod === undefined)
      throw new NotFound(nameOfKey(key), "malformed WorkloadEndpoint name - unable to determine Pod name");
    return `${podsPath(key.namespace ?? "")}/${encodeURIComponent(pod)}`;
  }
  createPath(key: ResourceKey): string {
    throw new Unsupported("Create", nameOfKey(key), "endpoints are derived from pods");
  }
  decode(object: KubeObject): Stored<ResourceKey> | undefined {
    if (!isWorkloadPod(object)) return undefined;
    return stored(workloadEndpointFromPod(object, this.report, this.options), object);
  }
  encode(entry: Entry<ResourceKey>): KubeObject {
    throw new Unsupported("Create", nameOfKey(entry.key), "endpoints are derived from pods");
  }
  /** Returns the patch of the pod for a write of the endpoint: annotations with its addresses and its interface. */
  patch({ key, value }: Entry<ResourceKey>): object | undefined {
    const spec = value.spec as Parameters<typeof podPatch>[0];
    const patch = podPatch({ ...spec, namespace: key.namespace }, new Date(), this.options);
    return patch && withUid(patch, value.metadata.uid);
  }
  /** Returns the patch of the pod for a deletion: the annotation becomes empty, which shows that the addresses are free. */
  deletionPatch(uid: string | undefined): object {
    return withUid(podErasure(new Date()), uid);
  }
}

/** With a UID, the API server applies the patch only to that pod, not to a later one of the same name. */
const withUid = (patch: ReturnType<typeof podErasure>, uid: string | undefined): object =>
  uid === undefined ? patch : { ...patch, metadata: { ...patch.metadata, uid } };

const podsPath = (namespace: string): string => `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;

function podOf(endpointName: string | undefined): string | undefined {
  const identity = endpointName === undefined ? undefined : parseWorkloadEndpointName(endpointName);
  return identity?.orchestrator === "k8s" ? identity.workload : undefined;
}

/** Objects of Kubernetes that are passed on unchanged, under a kind of Calico. */
export class RawObjects implements Collection<ResourceKey> {
  readonly isOptional = true;
  readonly definition: Definition | undefined;
  /** @param options.isCustom the kind has a definition (CRD), which other projects install */
  constructor(
    readonly kind: KindName,
    readonly group: string,
    readonly plural: string,
    readonly namespaced: boolean,
    options: { readonly isCustom?: boolean } = {},
  ) {
    const [groupName = "", version = ""] = group.split("/");
    this.definition = options.isCustom === true ? { name: `${plural}.${groupName}`, version } : undefined;
  }

  select(query: StoredQuery): Selection {
    const { namespace, name } = query as ResourceQuery;
    return { path: this.#path(namespace), fieldSelector: name === undefined ? undefined : `metadata.name=${name}` };
  }
  keyOf(object: KubeObject): ResourceKey {
    const { name, namespace } = object.metadata;
    return { type: "resource", kind: this.kind, name, namespace };
  }
  itemPath(key: ResourceKey): string {
    return `${this.#path(key.namespace)}/${encodeURIComponent(key.name)}`;
  }
  createPath(key: ResourceKey): string {
    throw new Unsupported("Create", nameOfKey(key), "it belongs to Kubernetes");
  }
  decode(object: KubeObject & { readonly spec?: unknown }): Stored<ResourceKey> | undefined {
    const value: Resource = {
      ...object,
      apiVersion: API_VERSION,
      kind: this.kind,
      metadata: object.metadata as Metadata,
      spec: object.spec ?? {},
    };
    return stored(value, object);
  }
  encode(entry: Entry<ResourceKey>): KubeObject {
    throw new Unsupported("Create", nameOfKey(entry.key), "it belongs to Kubernetes");
  }
  #path(namespace?: string): string {
    const root = this.group === "v1" ? "/api/v1" : `/apis/${this.group}`;
    return `${root}${this.namespaced && namespace !== undefined ? `/namespaces/${encodeURIComponent(namespace)}` : ""}/${this.plural}`;
  }
}

/** Live migrations of virtual machines, derived from KubeVirt's migrations that are in progress. */
export class LiveMigrations extends RawObjects {
  constructor() {
    super("LiveMigration", "kubevirt.io/v1", "virtualmachineinstancemigrations", true, { isCustom: true });
  }
  override decode(object: KubeObject): Stored<ResourceKey> | undefined {
    const value = liveMigrationFromKubeVirt(object);
    return value === undefined ? undefined : stored(value, object);
  }
}
