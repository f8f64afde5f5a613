// What fields mean, for `kubectl explain`: by kind and path in the spec, items of a list under the list's own path.
// Stands apart from the schemas, so that validating does not load it.
import { FELIX_SETTINGS, type FelixSetting } from "../felix-settings/index.ts";
import type { SchemaKind } from "../resources.ts";

type Texts = Readonly<Record<string, string>>;

const entity = (at: string, end: string): Texts => ({
  [at]: `Which ${end}s the rule is about; all that is said must hold.`,
  [`${at}.nets`]: `The ${end}'s address is in one of these CIDRs.`,
  [`${at}.notNets`]: `The ${end}'s address is in none of these CIDRs.`,
  [`${at}.selector`]: `The ${end} is an endpoint or network set with these labels. In a namespaced policy: of its own namespace, unless namespaceSelector says otherwise.`,
  [`${at}.notSelector`]: `The ${end} is no endpoint or network set with these labels; addresses nobody owns are let through.`,
  [`${at}.namespaceSelector`]: `The ${end} is in a namespace with these labels; global() means in none.`,
  [`${at}.serviceAccounts`]: `The ${end} is a pod with one of these service accounts.`,
  [`${at}.services`]: `The ${end} is behind this Kubernetes service. Excludes selectors and nets.`,
  [`${at}.ports`]: `One of these ports: numbers, ranges such as 8000:8080, or names that endpoints give their ports.`,
  [`${at}.notPorts`]: "None of these ports.",
});
const rules = (at: "ingress" | "egress"): Texts => ({
  [at]: `Rules for ${at === "ingress" ? "incoming" : "outgoing"} traffic, in order; the first that matches decides.`,
  [`${at}.action`]: "Allow and Deny decide; Pass leaves it to the next tier; Log writes a line and goes on.",
  [`${at}.ipVersion`]: "Only packets of this IP version.",
  [`${at}.protocol`]: "TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number.",
  [`${at}.notProtocol`]: "Any protocol but this.",
  [`${at}.icmp`]: "ICMP messages of this type and code; needs protocol ICMP or ICMPv6.",
  [`${at}.notICMP`]: "Not ICMP messages of this type and code.",
  [`${at}.http`]: "HTTP methods and paths, where the application layer is enforced.",
  [`${at}.metadata`]: "Annotations of the rule; they show up as comments in the dataplane.",
  ...entity(`${at}.source`, "source"),
  ...entity(`${at}.destination`, "destination"),
});
const policy: Texts = {
  tier: "The tier the policy belongs to.",
  order: "Policies of a tier are evaluated by this number, lowest first; without one, last.",
  selector: "The endpoints the policy applies to, by labels; empty means all.",
  serviceAccountSelector: "Only pods whose service account has these labels.",
  types: "The directions the policy is about. Without it: those it has rules for, and Ingress when it has none.",
  performanceHints: "AssumeNeededOnEveryNode keeps the policy programmed where no endpoint needs it yet.",
  ...rules("ingress"),
  ...rules("egress"),
};
const globalPolicy: Texts = {
  ...policy,
  namespaceSelector: "Only endpoints in namespaces with these labels.",
  doNotTrack: "Applies to host endpoints before connection tracking; replies need rules of their own.",
  preDNAT: "Applies to host endpoints before DNAT; ingress only.",
  applyOnForward: "Applies also to traffic that host endpoints forward.",
};
const staged: Texts = { stagedAction: "Set to try the policy, Delete to try living without it." };
const tier: Texts = {
  order: "Tiers are evaluated by this number, lowest first.",
  defaultAction:
    "What happens to traffic that the tier's policies apply to and do not decide: Deny, or Pass to the next tier.",
};

export const DESCRIPTIONS: Partial<Record<SchemaKind, Texts>> = {
  NetworkPolicy: policy,
  GlobalNetworkPolicy: globalPolicy,
  StagedNetworkPolicy: { ...staged, ...policy },
  StagedGlobalNetworkPolicy: { ...staged, ...globalPolicy },
  StagedKubernetesNetworkPolicy: {
    ...staged,
    podSelector: "The pods the policy applies to.",
    policyTypes: "The directions the policy is about.",
  },
  Tier: tier,
  Profile: { ...rules("ingress"), ...rules("egress") },
  IPPool: {
    cidr: "The pool's addresses. Cannot be changed.",
    vxlanMode: "Carry traffic between the pool's addresses in VXLAN: Never, Always, or CrossSubnet.",
    ipipMode: "Carry traffic between the pool's addresses in IPIP: Never, Always, or CrossSubnet. IPv4 only.",
    natOutgoing: "Traffic from the pool to addresses outside all pools gets the node's address.",
    disabled: "No new addresses are given out.",
    disableBGPExport: "Routes to the pool are not announced over BGP.",
    blockSize:
      "Prefix length of the blocks handed to nodes: 20 to 32 (IPv4, 26) or 116 to 128 (IPv6, 122). Cannot be changed.",
    nodeSelector: "Nodes that take addresses from the pool.",
    namespaceSelector: "Namespaces whose pods take addresses from the pool.",
    allowedUses: "What addresses are for: Workload, Tunnel, or LoadBalancer alone.",
    assignmentMode: "Automatic, or Manual: only where the pool is asked for by name.",
  },
  IPReservation: { reservedCIDRs: "Addresses that automatic assignment leaves alone." },
  HostEndpoint: {
    node: "The node the interface is of.",
    interfaceName: "The interface; * means all that have no host endpoint of their own.",
    expectedIPs: "Addresses of the interface: how rules select it, and how it is found without a name.",
    profiles: "Profiles that decide when no policy applies, in order.",
    ports: "Names for ports, for use in rules.",
  },
  NetworkSet: { nets: "Addresses and CIDRs the set holds." },
  GlobalNetworkSet: { nets: "Addresses and CIDRs the set holds." },
  BGPConfiguration: {
    logSeverityScreen: "From which severity on the BGP service logs.",
    nodeToNodeMeshEnabled: "Every node peers with every other.",
    asNumber: "AS number of nodes that have none of their own; 64512 without it.",
    serviceLoadBalancerIPs: "Load balancer addresses of services that are announced.",
    serviceExternalIPs: "External addresses of services that are announced.",
    serviceClusterIPs: "Cluster addresses of services that are announced.",
    serviceLoadBalancerAggregation: "Announce whole load balancer CIDRs (Enabled) or single addresses.",
    communities: "Names for communities, for use in prefixAdvertisements.",
    prefixAdvertisements: "Communities given to routes inside these CIDRs.",
    listenPort: "Port BGP listens on; 179 without it.",
    nodeMeshPassword: "Where the password of mesh sessions stands.",
    nodeMeshMaxRestartTime: "How long mesh peers keep our routes while we restart.",
    bindMode: "None: listen on all addresses. NodeIP: on the node's BGP address only.",
    ignoredInterfaces: "Interfaces whose addresses are not taken up; * stands for any characters.",
    programClusterRoutes: "Which routes to workloads BGP writes into the kernel.",
  },
  BGPPeer: {
    node: "The node that peers; without node and nodeSelector, every node does.",
    nodeSelector: "The nodes that peer.",
    peerIP: "The peer's address, with or without port.",
    asNumber: "The peer's AS number.",
    localASNumber: "The AS number we show this peer.",
    peerSelector: "The nodes to peer with.",
    nextHopMode: "Auto, Self (announce ourselves as next hop) or Keep (the original one).",
    password: "Where the session's password stands.",
    sourceAddress: "UseNodeIP, or None to let the kernel choose.",
    ttlSecurity: "Largest number of hops to the peer; packets from farther are dropped.",
    reachableBy: "Gateway to the peer.",
    filters: "BGPFilters for the session, in order.",
    localWorkloadSelector: "Workloads of the node to peer with.",
  },
  BGPFilter: {
    exportV4: "Rules for IPv4 routes we announce, in order; the first that matches decides.",
    importV4: "Rules for IPv4 routes we learn, in order; the first that matches decides.",
    exportV6: "Rules for IPv6 routes we announce, in order; the first that matches decides.",
    importV6: "Rules for IPv6 routes we learn, in order; the first that matches decides.",
  },
  CalicoNodeStatus: {
    node: "The node that reports.",
    classes: "What it reports: Agent, BGP, Routes.",
    updatePeriodSeconds: "How often, in seconds; 0 means not again.",
  },
  FelixConfiguration: {
    nodeSelector: "The nodes to which the settings apply. Not allowed in default and node.<name>.",
    ...felixTexts(),
  },
  ClusterInformation: {
    clusterGUID: "The cluster's identity, made once.",
    clusterType: "Words that tell what the cluster is made of.",
    calicoVersion: "Version of the programs that initialised the datastore last.",
    datastoreReady: "Whether agents may use the datastore: false while it is being migrated.",
  },
  KubeControllersConfiguration: {
    logSeverityScreen: "From which severity on the controllers log.",
    healthChecks: "Whether the controllers report their health.",
    etcdV3CompactionPeriod: "How often etcd is compacted; 0 means never.",
    prometheusMetricsPort: "Port for metrics; 0 means none.",
    controllers: "The controllers that run, each with its settings.",
  },
  IPAMConfiguration: {
    strictAffinity: "Nodes take addresses from their own blocks only.",
    maxBlocksPerHost: "How many blocks a node may have; 0 means any number.",
    autoAllocateBlocks: "Nodes take new blocks when theirs are full.",
    ipCooldownSeconds: "How long a released address rests before it is given out again.",
  },
  IPAMBlock: {
    allocations: "By ordinal: index into attributes, or null when free.",
    unallocated: "Free ordinals, first to be given first.",
    attributes: "Who holds addresses of the block.",
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
