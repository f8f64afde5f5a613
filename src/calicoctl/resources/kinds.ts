// Defines the kinds that calicoctl manages and the names that select them on the command line. The kinds of IPAM (blocks,
// affinities, handles) are not included: `calicoctl ipam` shows those.
import { nearest } from "../../lib/nearest-name.ts";
import { findKind, type KindName } from "../../model/index.ts";

/** Names in addition to that of the kind itself. Case does not matter. */
const ALIASES = {
  BGPConfiguration: "bgpconfigurations bgpconfig bgpconfigs",
  BGPFilter: "bgpfilters bgpf bgpfs bf bfs",
  BGPPeer: "bgppeers bgpp bgpps bp bps",
  CalicoNodeStatus: "caliconodestatuses nodestatus nodestatuses",
  ClusterInformation: "clusterinformations clusterinfo clusterinfos",
  FelixConfiguration: "felixconfigurations felixconfig felixconfigs",
  GlobalNetworkPolicy: "globalnetworkpolicies gnp gnps",
  GlobalNetworkSet: "globalnetworksets gnetset gnetsets",
  HostEndpoint: "hostendpoints hep heps",
  IPAMConfiguration: "ipamconfigurations ipamconfig ipamconfigs",
  IPPool: "ippools ipp ipps pool pools",
  IPReservation: "ipreservations reservation reservations",
  KubeControllersConfiguration: "kubecontrollersconfigurations kubecontrollersconfig kubecontrollersconfigs",
  NetworkPolicy: "networkpolicies policy policies np nps pol pols",
  NetworkSet: "networksets netset netsets",
  Node: "nodes no nos",
  Profile: "profiles pro pros",
  StagedGlobalNetworkPolicy: "stagedglobalnetworkpolicies sgnp sgnps",
  StagedKubernetesNetworkPolicy:
    "stagedkubernetesnetworkpolicies stagedkubernetespolicy stagedkubernetespolicies sknp sknps skpol skpols",
  StagedNetworkPolicy: "stagednetworkpolicies stagedpolicy stagedpolicies snp snps spol spols",
  Tier: "tiers",
  WorkloadEndpoint: "workloadendpoints wep weps",
} as const satisfies Partial<Record<KindName, string>>;

export type ManagedKind = keyof typeof ALIASES;
export const MANAGED_KINDS = Object.keys(ALIASES) as readonly ManagedKind[];

/** Returns the names that select a kind, in addition to that of the kind itself, with the plural first. */
export const kindAliases = (kind: ManagedKind): readonly string[] => ALIASES[kind].split(" ");

/** Returns the kind with this name: `pools`, `IPPool` and `ipp` are all IPPool. */
export function findManagedKind(word: string): ManagedKind | undefined {
  const name = word.toLowerCase();
  return MANAGED_KINDS.find((kind) => kind.toLowerCase() === name || kindAliases(kind).includes(name));
}

/** Returns the most similar name of a kind: `ippool` for `ippol`. */
export function nearestKindName(word: string): string | undefined {
  const misspelled = word.toLowerCase();
  const names = MANAGED_KINDS.map((kind) => kind.toLowerCase());
  // Short aliases are similar to any word.
  const longer = MANAGED_KINDS.flatMap(kindAliases).filter((alias) => alias.length > 4);
  return nearest(misspelled, names) ?? (misspelled.length > 4 ? nearest(misspelled, longer) : undefined);
}

/** Whether this is the exact name of a kind, as in the `kind` field of a document. */
export const isManagedKind = (kind: string): kind is ManagedKind => Object.hasOwn(ALIASES, kind);

export const isNamespaced = (kind: ManagedKind): boolean => findKind(kind)?.namespaced ?? false;
