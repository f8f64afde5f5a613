// Describes the fields of all kinds for `kubectl explain`, by kind and path in the spec. Items of a list have the path of
// the list. The descriptions are separate from the schemas, so that validation does not load them.
import { FELIX_SETTINGS, type FelixSetting } from "../felix-settings/index.ts";
import type { SchemaKind } from "../resources.ts";

type Texts = Readonly<Record<string, string>>;

const entity = (at: string, end: string): Texts => ({
  [at]: `Conditions for the ${end} of a packet; all of them must be met.`,
  [`${at}.nets`]: `The ${end}'s address is in one of these CIDRs.`,
  [`${at}.notNets`]: `The ${end}'s address is in none of these CIDRs.`,
  [`${at}.selector`]: `Selects endpoints and network sets by labels. In a namespaced policy, only those of its namespace, unless namespaceSelector is set.`,
  [`${at}.notSelector`]: `Excludes endpoints and network sets with these labels. Addresses that belong to none match.`,
  [`${at}.namespaceSelector`]: `The ${end} is in a namespace with these labels; global() matches a ${end} without namespace.`,
  [`${at}.serviceAccounts`]: `The ${end} is a pod with one of these service accounts.`,
  [`${at}.services`]: `The ${end} is a backend of this Kubernetes service. Cannot be combined with selectors and nets.`,
  [`${at}.ports`]: `One of these ports: numbers, ranges such as 8000:8080, or names of ports that endpoints define.`,
  [`${at}.notPorts`]: "None of these ports.",
});
const rules = (at: "ingress" | "egress"): Texts => ({
  [at]: `Rules for ${at === "ingress" ? "incoming" : "outgoing"} traffic, in order; the first that matches decides.`,
  [`${at}.action`]:
    "Allow or Deny the packet, Pass to evaluate the next tier, or Log to log it and evaluate the next rule.",
  [`${at}.ipVersion`]: "Only packets of this IP version.",
  [`${at}.protocol`]: "TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number.",
  [`${at}.notProtocol`]: "Any protocol except this.",
  [`${at}.icmp`]: "ICMP messages of this type and code; requires protocol ICMP or ICMPv6.",
  [`${at}.notICMP`]: "Excludes ICMP messages of this type and code.",
  [`${at}.http`]: "HTTP methods and paths, if application layer policy is enforced.",
  [`${at}.metadata`]: "Annotations of the rule; they are shown as comments in the dataplane.",
  ...entity(`${at}.source`, "source"),
  ...entity(`${at}.destination`, "destination"),
});
const policy: Texts = {
  tier: "The tier to which the policy belongs.",
  order: "Policies of a tier are evaluated in ascending order of this number; those without it last.",
  selector: "Selects the endpoints to which the policy applies by labels; empty selects all.",
  serviceAccountSelector: "Only pods whose service account has these labels.",
  types:
    "The directions to which the policy applies. Default: those for which it has rules, or Ingress if it has no rules.",
  performanceHints: "AssumeNeededOnEveryNode programs the policy on every node, even if no endpoint needs it yet.",
  ...rules("ingress"),
  ...rules("egress"),
};
const globalPolicy: Texts = {
  ...policy,
  namespaceSelector: "Only endpoints in namespaces with these labels.",
  doNotTrack: "Applies to host endpoints before connection tracking; replies require their own rules.",
  preDNAT: "Applies to host endpoints before DNAT; ingress only.",
  applyOnForward: "Applies also to traffic that host endpoints forward.",
};
const staged: Texts = { stagedAction: "Set to test the policy, Delete to test its deletion." };
const tier: Texts = {
  order: "Tiers are evaluated in ascending order of this number.",
  defaultAction:
    "The action for traffic to which policies of the tier apply, but that no rule matches: Deny, or Pass to the next tier.",
};

export const DESCRIPTIONS: Partial<Record<SchemaKind, Texts>> = {
  NetworkPolicy: policy,
  GlobalNetworkPolicy: globalPolicy,
  StagedNetworkPolicy: { ...staged, ...policy },
  StagedGlobalNetworkPolicy: { ...staged, ...globalPolicy },
  StagedKubernetesNetworkPolicy: {
    ...staged,
    podSelector: "The pods to which the policy applies.",
    policyTypes: "The directions to which the policy applies.",
  },
  Tier: tier,
  Profile: { ...rules("ingress"), ...rules("egress") },
  IPPool: {
    cidr: "The pool's addresses. Cannot be changed.",
    vxlanMode: "Encapsulate traffic between the pool's addresses with VXLAN: Never, Always, or CrossSubnet.",
    ipipMode: "Encapsulate traffic between the pool's addresses with IPIP: Never, Always, or CrossSubnet. IPv4 only.",
    natOutgoing: "Masquerade traffic from the pool to addresses outside all pools with the node's address.",
    disabled: "No new addresses are assigned.",
    disableBGPExport: "Routes to the pool are not announced over BGP.",
    blockSize:
      "Prefix length of the blocks that nodes claim: 20 to 32 for IPv4 (default 26), 116 to 128 for IPv6 (default 122). Cannot be changed.",
    nodeSelector: "The nodes that assign addresses from the pool.",
    namespaceSelector: "The namespaces whose pods get addresses from the pool.",
    allowedUses: "The uses of addresses: Workload and Tunnel, or only LoadBalancer.",
    assignmentMode: "Automatic, or Manual: the pool is used only if it is requested by name.",
  },
  IPReservation: { reservedCIDRs: "Addresses that automatic assignment does not use." },
  HostEndpoint: {
    node: "The node that has the interface.",
    interfaceName: "The interface; * means all interfaces without their own host endpoint.",
    expectedIPs: "Addresses of the interface. Rules use them, and they identify the interface if it has no name here.",
    profiles: "Profiles that apply if no policy applies, in order.",
    ports: "Names for ports, for use in rules.",
  },
  NetworkSet: { nets: "The addresses and CIDRs of the set." },
  GlobalNetworkSet: { nets: "The addresses and CIDRs of the set." },
  BGPConfiguration: {
    logSeverityScreen: "Lowest severity of messages that the BGP service logs.",
    nodeToNodeMeshEnabled: "Every node has a BGP session with every other node.",
    asNumber: "AS number of nodes without their own. Default: 64512.",
    serviceLoadBalancerIPs: "CIDRs of service load balancer addresses that are announced.",
    serviceExternalIPs: "CIDRs of external service addresses that are announced.",
    serviceClusterIPs: "CIDRs of service cluster IPs that are announced.",
    serviceLoadBalancerAggregation: "Announce whole load balancer CIDRs (Enabled) or single addresses (Disabled).",
    communities: "Names for communities, for use in prefixAdvertisements.",
    prefixAdvertisements: "Communities of routes within these CIDRs.",
    listenPort: "Port on which BGP listens. Default: 179.",
    nodeMeshPassword: "Secret that contains the password of mesh sessions.",
    nodeMeshMaxRestartTime: "How long mesh peers keep the routes of a node that restarts.",
    bindMode: "None: listen on all addresses. NodeIP: on the node's BGP address only.",
    ignoredInterfaces: "Interfaces whose addresses BGP ignores; * matches any characters.",
    programClusterRoutes:
      "The routes to workloads that BGP programs in the kernel: all, none, or those with or without IPIP.",
  },
  BGPPeer: {
    node: "The node that has the session. Without node and nodeSelector, all nodes have it.",
    nodeSelector: "The nodes that have the session.",
    peerIP: "The peer's address, with or without port.",
    asNumber: "The peer's AS number.",
    localASNumber: "The AS number that the node uses for this peer.",
    peerSelector: "The nodes that are the peers.",
    nextHopMode: "Auto, Self (the node announces itself as next hop) or Keep (the next hop is not changed).",
    password: "Secret that contains the password of the session.",
    sourceAddress: "UseNodeIP, or None to let the kernel choose.",
    ttlSecurity: "Maximum number of hops to the peer; packets with more hops are dropped.",
    reachableBy: "Gateway to the peer.",
    filters: "BGPFilters for the session, in order.",
    localWorkloadSelector: "The local workloads that are the peers.",
  },
  BGPFilter: {
    exportV4: "Rules for exported IPv4 routes, in order; the first that matches decides.",
    importV4: "Rules for imported IPv4 routes, in order; the first that matches decides.",
    exportV6: "Rules for exported IPv6 routes, in order; the first that matches decides.",
    importV6: "Rules for imported IPv6 routes, in order; the first that matches decides.",
  },
  CalicoNodeStatus: {
    node: "The node that reports.",
    classes: "The parts of the report: Agent, BGP, Routes.",
    updatePeriodSeconds: "Interval between reports in seconds; 0 means one report.",
  },
  FelixConfiguration: {
    nodeSelector: "The nodes to which the settings apply. Not allowed in default and node.<name>.",
    ...felixTexts(),
  },
  ClusterInformation: {
    clusterGUID: "The unique ID of the cluster.",
    clusterType: "The types of the cluster, separated by commas.",
    calicoVersion: "The version that initialised the datastore last.",
    datastoreReady: "Whether agents may use the datastore: false while it is being migrated.",
  },
  KubeControllersConfiguration: {
    logSeverityScreen: "Lowest severity of messages that the controllers log.",
    healthChecks: "Whether the controllers report their health.",
    etcdV3CompactionPeriod: "Interval between compactions of etcd; 0 means never.",
    prometheusMetricsPort: "Port of the metrics server; 0 disables it.",
    controllers: "The enabled controllers, each with its settings.",
  },
  IPAMConfiguration: {
    strictAffinity: "Nodes assign addresses only from their own blocks.",
    maxBlocksPerHost: "Maximum number of blocks of a node; 0 means no limit.",
    autoAllocateBlocks: "Nodes claim new blocks when theirs are full.",
    ipCooldownSeconds: "Time before a released address may be assigned again, in seconds.",
  },
  IPAMBlock: {
    allocations: "By ordinal: index into attributes, or null if the address is free.",
    unallocated: "Free ordinals, in the order in which they will be assigned.",
    attributes: "The owners of addresses of the block.",
  },
};

function felixTexts(): Texts {
  const settings = Object.values<FelixSetting>(FELIX_SETTINGS);
  return Object.fromEntries(
    settings.flatMap((setting) => (setting.field === undefined ? [] : [[setting.field, felixText(setting)]])),
  );
}

function felixText({ type, default: defaultText, meaning, noEffect }: FelixSetting): string {
  const unit = ["seconds", "milliseconds"].includes(type.name) ? ` ${type.name}` : "";
  const sentences = [
    meaning.replaceAll("`", ""),
    ...(defaultText === "" ? [] : [`Default: ${defaultText}${unit}`]),
    ...(noEffect === undefined ? [] : [`No effect in calico-ts: ${noEffect}`]),
  ];
  return sentences.map((sentence) => `${sentence}.`).join(" ");
}
