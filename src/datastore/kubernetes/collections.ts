// Maps each kind and key type to its collection in the Kubernetes API.
import {
  KINDS,
  type KindName,
  KUBERNETES_POLICY_PREFIX,
  type ResourceKey,
  type StoredKey,
  type StoredQuery,
} from "../../model/index.ts";
import { Unsupported } from "../errors.ts";
import type { Collection } from "./collection.ts";
import { type ApiGroup, CustomResources } from "./custom-resources.ts";
import { Endpoints, LiveMigrations, Nodes, RawObjects } from "./derived-resources.ts";
import { Affinities, Blocks, Handles, IpamConfigs } from "./ipam-resources.ts";

const WRITES: ReadonlySet<string> = new Set(["Create", "Update", "Delete"]);
/**
 * True for the Calico name of a Kubernetes NetworkPolicy. This driver reads such a policy from Kubernetes, and a stored
 * policy of the same name would shadow it.
 */
const isConvertedPolicy = (key: { readonly kind: string; readonly name?: string }): boolean =>
  key.kind === "NetworkPolicy" && key.name?.startsWith(KUBERNETES_POLICY_PREFIX) === true;

const CLUSTER_POLICIES = "policy.networking.k8s.io/v1alpha2";

export class Collections {
  readonly nodes: Nodes;
  readonly endpoints: Endpoints;
  readonly #resources = new Map<KindName, Collection<ResourceKey>>();
  readonly #ipam: ReadonlyMap<StoredKey["type"], unknown>;

  constructor(group: ApiGroup, options: { readonly usePodCidr: boolean; readonly interfacePrefix?: string }) {
    this.nodes = new Nodes(options);
    this.endpoints = new Endpoints(() => {}, options);
    for (const { name, served } of KINDS) if (served) this.#resources.set(name, new CustomResources(name, group));
    for (const raw of [
      new RawObjects("KubernetesNetworkPolicy", "networking.k8s.io/v1", "networkpolicies", true),
      new RawObjects("KubernetesClusterNetworkPolicy", CLUSTER_POLICIES, "clusternetworkpolicies", false, {
        isCustom: true,
      }),
      new RawObjects("KubernetesEndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
      new RawObjects("KubernetesService", "v1", "services", true),
      new LiveMigrations(),
    ])
      this.#resources.set(raw.kind, raw);
    this.#resources.set("Node", this.nodes);
    this.#resources.set("WorkloadEndpoint", this.endpoints);
    this.#resources.delete("Profile"); // read from two collections, by `profiles.ts`
    // If addresses come from the nodes' pod CIDRs, there are no IPAM objects.
    this.#ipam = new Map<StoredKey["type"], unknown>(
      options.usePodCidr
        ? []
        : [
            ["block", new Blocks(group)],
            ["blockAffinity", new Affinities(group)],
            ["ipamHandle", new Handles(group)],
            ["ipamConfig", new IpamConfigs(group)],
          ],
    );
  }

  /** @throws Unsupported for kinds that the Kubernetes datastore does not store, and for writes of derived kinds */
  of<K extends StoredKey>(operation: string, key: StoredKey | StoredQuery): Collection<K> {
    const isResource = key.type === "resource";
    if (isResource && WRITES.has(operation) && isConvertedPolicy(key))
      throw new Unsupported(
        operation,
        `${key.kind}(${key.namespace}/${key.name})`,
        "change the Kubernetes NetworkPolicy instead",
      );
    const found = isResource ? this.#resources.get(key.kind) : this.#ipam.get(key.type);
    if (found !== undefined) return found as Collection<K>;
    if (!isResource) throw new Unsupported(operation, key.type, "the Kubernetes datastore does not store it");
    const id = key.name === undefined ? key.kind : `${key.kind}(${key.name})`;
    throw new Unsupported(operation, id, "it is derived from Kubernetes");
  }
}
