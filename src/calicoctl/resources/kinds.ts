// The kinds calicoctl manages and every word by which they may be called. Kinds of the address manager (blocks,
// affinities, handles) are not among them: `calicoctl ipam` shows those.
import { nearest } from "../../lib/nearest-name.ts";
import { findKind, type KindName } from "../../model/index.ts";

/** Besides the kind's own name, and in any case. */
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

/** `pools`, `IPPool`, `ipp`: the kind that was meant. */
export function kindCalled(word: string): ManagedKind | undefined {
  const wanted = word.toLowerCase();
  return MANAGED_KINDS.find((kind) => kind.toLowerCase() === wanted || ALIASES[kind].split(" ").includes(wanted));
}

/** The word nearest to one that names no kind: `ippol` was meant to be `ippool`. */
export function kindNear(word: string): string | undefined {
  const wanted = word.toLowerCase();
  const names = MANAGED_KINDS.map((kind) => kind.toLowerCase());
  // Two-letter words are near to everything.
  const longer = MANAGED_KINDS.flatMap((kind) => ALIASES[kind].split(" ")).filter((alias) => alias.length > 4);
  return nearest(wanted, names) ?? (wanted.length > 4 ? nearest(wanted, longer) : undefined);
}

/** A document's `kind`, spelled exactly. */
export const isManagedKind = (kind: string): kind is ManagedKind => Object.hasOwn(ALIASES, kind);

export const isNamespaced = (kind: ManagedKind): boolean => findKind(kind)?.namespaced ?? false;
