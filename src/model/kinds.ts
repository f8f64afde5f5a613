// Lists all kinds with their plural and short names and their scope. calicoctl and the CNI plugin use this table, so it
// loads no schemas; those are in kinds/, one file per kind.

export type KindName =
  | "IPPool"
  | "IPReservation"
  | "Node"
  | "WorkloadEndpoint"
  | "HostEndpoint"
  | "NetworkPolicy"
  | "GlobalNetworkPolicy"
  | "StagedNetworkPolicy"
  | "StagedGlobalNetworkPolicy"
  | "StagedKubernetesNetworkPolicy"
  | "Tier"
  | "Profile"
  | "NetworkSet"
  | "GlobalNetworkSet"
  | "BGPConfiguration"
  | "BGPPeer"
  | "BGPFilter"
  | "CalicoNodeStatus"
  | "FelixConfiguration"
  | "ClusterInformation"
  | "KubeControllersConfiguration"
  | "IPAMConfiguration"
  | "IPAMBlock"
  | "BlockAffinity"
  | "IPAMHandle"
  | "LiveMigration"
  // Kubernetes' own kinds, which syncers emit and nothing writes
  | "KubernetesNetworkPolicy"
  | "KubernetesClusterNetworkPolicy"
  | "KubernetesEndpointSlice"
  | "KubernetesService";

export interface Kind {
  readonly name: KindName;
  readonly plural: string;
  readonly namespaced: boolean;
  readonly shortNames: readonly string[];
  /** True if users can access it through the v3 API; other kinds are internal to syncers. */
  readonly served: boolean;
  /** True if the status is a subresource, which is written separately from the spec. */
  readonly hasStatus: boolean;
}

const kind = (name: KindName, plural: string, options: Partial<Omit<Kind, "name" | "plural">> = {}): Kind => ({
  name,
  plural,
  namespaced: false,
  shortNames: [],
  served: true,
  hasStatus: false,
  ...options,
});

export const KINDS: readonly Kind[] = [
  kind("IPPool", "ippools", { hasStatus: true }),
  kind("IPReservation", "ipreservations"),
  kind("Node", "nodes"),
  kind("WorkloadEndpoint", "workloadendpoints", { namespaced: true }),
  kind("HostEndpoint", "hostendpoints", { shortNames: ["hep", "heps"] }),
  kind("NetworkPolicy", "networkpolicies", { namespaced: true, shortNames: ["cnp", "caliconetworkpolicy"] }),
  kind("GlobalNetworkPolicy", "globalnetworkpolicies", { shortNames: ["gnp", "cgnp"] }),
  kind("StagedNetworkPolicy", "stagednetworkpolicies", { namespaced: true, shortNames: ["scnp", "snp"] }),
  kind("StagedGlobalNetworkPolicy", "stagedglobalnetworkpolicies", { shortNames: ["sgnp"] }),
  kind("StagedKubernetesNetworkPolicy", "stagedkubernetesnetworkpolicies", { namespaced: true, shortNames: ["sknp"] }),
  kind("Tier", "tiers", { hasStatus: true }),
  kind("Profile", "profiles"),
  kind("NetworkSet", "networksets", { namespaced: true }),
  kind("GlobalNetworkSet", "globalnetworksets", { shortNames: ["gns"] }),
  kind("BGPConfiguration", "bgpconfigurations", { shortNames: ["bgpconfig", "bgpconfigs"] }),
  kind("BGPPeer", "bgppeers"),
  kind("BGPFilter", "bgpfilters"),
  kind("CalicoNodeStatus", "caliconodestatuses", { hasStatus: true }),
  kind("FelixConfiguration", "felixconfigurations"),
  kind("ClusterInformation", "clusterinformations", { shortNames: ["clusterinfo", "clusterinfos"] }),
  kind("KubeControllersConfiguration", "kubecontrollersconfigurations", {
    shortNames: ["kcc", "kccs"],
    hasStatus: true,
  }),
  kind("IPAMConfiguration", "ipamconfigurations", { shortNames: ["ipamconfig", "ipamconfigs"] }),
  kind("IPAMBlock", "ipamblocks"),
  kind("BlockAffinity", "blockaffinities", { shortNames: ["affinity", "affinities"] }),
  kind("IPAMHandle", "ipamhandles"),
  kind("LiveMigration", "livemigrations", { namespaced: true, served: false }),
  kind("KubernetesNetworkPolicy", "kubernetesnetworkpolicies", { namespaced: true, served: false }),
  kind("KubernetesClusterNetworkPolicy", "kubernetesclusternetworkpolicies", { served: false }),
  kind("KubernetesEndpointSlice", "kubernetesendpointslices", { namespaced: true, served: false }),
  kind("KubernetesService", "kubernetesservice", { namespaced: true, served: false }),
];

const BY_NAME = new Map(KINDS.map((k) => [k.name, k]));
const BY_PLURAL = new Map(KINDS.map((k) => [k.plural, k]));

export function kindOf(name: KindName): Kind {
  const found = BY_NAME.get(name);
  if (found === undefined) throw new Error(`unknown kind ${name}`);
  return found;
}

export const findKind = (name: string): Kind | undefined => BY_NAME.get(name as KindName);
export const findKindByPlural = (plural: string): Kind | undefined => BY_PLURAL.get(plural);

/** The status that readers receive, and that datastores other than Kubernetes store, before one is written. */
export const INITIAL_STATUS: Readonly<Partial<Record<KindName, object>>> = {
  Tier: {},
  KubeControllersConfiguration: {},
  CalicoNodeStatus: {
    lastUpdated: null,
    agent: { birdV4: {}, birdV6: {} },
    bgp: { numberEstablishedV4: 0, numberNotEstablishedV4: 0, numberEstablishedV6: 0, numberNotEstablishedV6: 0 },
    routes: {},
  },
};

const TIERED: readonly KindName[] = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
];
const BY_NAMESPACE: readonly KindName[] = ["NetworkPolicy", "NetworkSet", "StagedNetworkPolicy"];

/** Returns the fields that field selectors can use. */
export function selectableFields(kind: KindName): readonly string[] {
  const fields = ["metadata.name"];
  if (BY_NAMESPACE.includes(kind)) fields.push("metadata.namespace");
  if (TIERED.includes(kind)) fields.push("spec.tier");
  return fields;
}
