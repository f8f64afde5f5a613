// Describes the fields inside the objects that descriptions.ts describes, the kinds that programs write, and statuses. Used for
// `kubectl explain` and docs/reference. Paths are those of descriptions.ts.
import type { SchemaKind } from "../resources.ts";

type Texts = Readonly<Record<string, string>>;

const under = (path: string, texts: Texts): Texts =>
  Object.fromEntries(Object.entries(texts).map(([name, text]) => [`${path}.${name}`, text]));

const icmp: Texts = { type: "ICMP type, such as 8 for an echo request.", code: "ICMP code. Needs type." };
const entity: Texts = {
  "services.name": "Name of the service.",
  "services.namespace": "Namespace of the service. In a namespaced policy, the default is the policy's namespace.",
  "serviceAccounts.names": "Names of service accounts. If empty, every name matches.",
  "serviceAccounts.selector": "Selects service accounts by their labels. If names is set too, both must match.",
};
const rule: Texts = {
  ...under("icmp", icmp),
  ...under("notICMP", icmp),
  ...under("source", entity),
  ...under("destination", entity),
  "http.methods": "HTTP methods. If empty, every method matches.",
  "http.paths": "HTTP paths. If empty, every path matches.",
  "http.paths.exact": "The path is equal to this text.",
  "http.paths.prefix": "The path begins with this text.",
  "metadata.annotations": "Key-value pairs.",
};
const policy: Texts = { ...under("ingress", rule), ...under("egress", rule) };

const labelSelector: Texts = {
  matchLabels: "Labels with their values; all must match.",
  matchExpressions: "Requirements for labels; all must be met.",
  "matchExpressions.key": "Label key.",
  "matchExpressions.operator": "In, NotIn, Exists or DoesNotExist.",
  "matchExpressions.values": "Values for In and NotIn.",
};
const kubernetesRules = (direction: "ingress" | "egress"): Texts => {
  const [peers, end] = direction === "ingress" ? ["from", "source"] : ["to", "destination"];
  return {
    [direction]: `Rules for ${direction === "ingress" ? "incoming" : "outgoing"} traffic. Traffic that a rule matches is allowed.`,
    ...under(direction, {
      ports: "Destination ports. If empty, every port matches.",
      "ports.protocol": "TCP, UDP or SCTP.",
      "ports.port": "Number or name of the port. If absent, every port matches.",
      "ports.endPort": "Last port of a range that begins with port.",
      [peers]: `Possible ${end}s. If empty, every ${end} matches.`,
      ...under(peers, {
        podSelector: `The ${end} is a pod with these labels. Without namespaceSelector: in the policy's namespace.`,
        ...under("podSelector", labelSelector),
        namespaceSelector: `The ${end} is in a namespace with these labels.`,
        ...under("namespaceSelector", labelSelector),
        ipBlock: `The ${end} is in a range of addresses.`,
        "ipBlock.cidr": "Range of addresses.",
        "ipBlock.except": "Ranges inside cidr that do not match.",
      }),
    }),
  };
};

const secret: Texts = {
  secretKeyRef: "Key of a Kubernetes Secret in the namespace of calico-node.",
  "secretKeyRef.name": "Name of the Secret.",
  "secretKeyRef.key": "Key in the Secret.",
  "secretKeyRef.optional": "Accepted for compatibility; has no effect.",
};

const filterRule: Texts = {
  cidr: "Compares the route's destination with this range, according to matchOperator.",
  prefixLength: "Limits the prefix length of the route. Needs cidr.",
  "prefixLength.min": "Smallest prefix length. The default is that of cidr.",
  "prefixLength.max": "Largest prefix length. The default is 32 (IPv4) or 128 (IPv6).",
  source: "RemotePeers: only routes that were learned from BGP peers.",
  interface: "Name of the route's interface; * stands for any characters.",
  matchOperator: "Equal, NotEqual, In or NotIn; compares the route's destination with cidr.",
  peerType: "eBGP or iBGP: only sessions of this type.",
  communities: "Communities that the route must have.",
  "communities.values": "Exactly one community, such as 65000:100.",
  asPathPrefix: "AS numbers with which the route's AS path begins.",
  priority: "Metric of the route in the kernel.",
  action: "Accept or Reject.",
  operations: "Changes to an accepted route, in order; at most 10.",
  "operations.addCommunity": "Adds a community.",
  "operations.addCommunity.value": "The community, such as 65000:100.",
  "operations.prependASPath": "Prepends AS numbers to the AS path.",
  "operations.prependASPath.prefix": "One to ten AS numbers.",
  "operations.setPriority": "Sets the metric of the route in the kernel.",
  "operations.setPriority.value": "The metric.",
};

const endpointPort: Texts = {
  "ports.name": "Name of the port, for use in rules.",
  "ports.protocol": "Protocol of the port.",
  "ports.port": "Port number.",
};

const reconcilerPeriod = "Interval at which the controller compares everything again.";
const controllers: Texts = {
  node: "Removes the data of deleted nodes, releases leaked addresses, and maintains host endpoints.",
  "node.reconcilerPeriod": reconcilerPeriod,
  "node.syncLabels":
    "Copies labels of Kubernetes nodes to Calico nodes. With the Kubernetes datastore they are the same object.",
  "node.hostEndpoint": "Host endpoints that the controller creates for nodes.",
  "node.hostEndpoint.autoCreate": "Whether host endpoints are created.",
  "node.hostEndpoint.createDefaultHostEndpoint": "Whether each node gets a host endpoint for all its interfaces.",
  "node.hostEndpoint.templates": "Additional host endpoints.",
  "node.hostEndpoint.templates.generateName": "Part of the name of the host endpoints.",
  "node.hostEndpoint.templates.interfaceCIDRs": "Addresses of the node in these ranges become expectedIPs.",
  "node.hostEndpoint.templates.interfacePattern": "Regular expression for the names of interfaces.",
  "node.hostEndpoint.templates.labels": "Labels of the host endpoints.",
  "node.hostEndpoint.templates.annotations": "Annotations of the host endpoints.",
  "node.hostEndpoint.templates.nodeSelector": "Nodes that get the host endpoints.",
  "node.leakGracePeriod": "How long an address must appear leaked before it is released; 0 turns this off.",
  policy: "Copies Kubernetes network policies. Not needed with the Kubernetes datastore.",
  "policy.reconcilerPeriod": reconcilerPeriod,
  workloadEndpoint: "Copies labels of pods to workload endpoints. Not needed with the Kubernetes datastore.",
  "workloadEndpoint.reconcilerPeriod": reconcilerPeriod,
  serviceAccount: "Copies service accounts as profiles. Not needed with the Kubernetes datastore.",
  "serviceAccount.reconcilerPeriod": reconcilerPeriod,
  namespace: "Copies namespaces as profiles. Not needed with the Kubernetes datastore.",
  "namespace.reconcilerPeriod": reconcilerPeriod,
  loadBalancer: "Assigns addresses to services of type LoadBalancer.",
  "loadBalancer.assignIPs": "AllServices, or RequestedServicesOnly: services whose annotations request an address.",
  migration: "Migrations of stored data.",
  "migration.policyNameMigrator": "Whether policies that are stored under old names are renamed.",
};
const debugProfilePort = "Port for Go profiles. No effect in calico-ts: there is no Go runtime.";

export const NESTED_DESCRIPTIONS: Partial<Record<SchemaKind, Texts>> = {
  NetworkPolicy: policy,
  GlobalNetworkPolicy: policy,
  StagedNetworkPolicy: policy,
  StagedGlobalNetworkPolicy: policy,
  StagedKubernetesNetworkPolicy: {
    ...under("podSelector", labelSelector),
    ...kubernetesRules("ingress"),
    ...kubernetesRules("egress"),
  },
  Profile: { labelsToApply: "Labels that endpoints with this profile inherit.", ...policy },
  Node: {
    bgp: "BGP settings of the node. If absent, the node does not take part in BGP.",
    "bgp.asNumber": "AS number. The default is that of BGPConfiguration.",
    "bgp.ipv4Address": "IPv4 address, with the prefix length of its network.",
    "bgp.ipv6Address": "IPv6 address, with the prefix length of its network.",
    "bgp.ipv4IPIPTunnelAddr": "Address of the IPIP device. Written by calico-node.",
    "bgp.routeReflectorClusterID": "If set, the node is a route reflector with this cluster ID, such as 244.0.0.1.",
    ipv4VXLANTunnelAddr: "Address of the IPv4 VXLAN device. Written by calico-node.",
    vxlanTunnelMACAddr: "MAC address of the IPv4 VXLAN device. If absent, it is derived from the name of the node.",
    ipv6VXLANTunnelAddr: "Address of the IPv6 VXLAN device. Written by calico-node.",
    vxlanTunnelMACAddrV6: "MAC address of the IPv6 VXLAN device. If absent, it is derived from the name of the node.",
    orchRefs: "Names of the node in orchestrators.",
    "orchRefs.nodeName": "Name of the node in the orchestrator.",
    "orchRefs.orchestrator": "Name of the orchestrator, such as k8s.",
    wireguard: "WireGuard settings of the node.",
    "wireguard.interfaceIPv4Address": "Address of the IPv4 WireGuard device. Written by calico-node.",
    "wireguard.interfaceIPv6Address": "Address of the IPv6 WireGuard device. Written by calico-node.",
    addresses: "Addresses of the node. Policy treats them as addresses of the node.",
    "addresses.address": "The address, with or without a prefix length.",
    "addresses.type": "CalicoNodeIP, InternalIP or ExternalIP.",
    interfaces: "Interfaces of the node.",
    "interfaces.name": "Name of the interface.",
    "interfaces.addresses": "Addresses of the interface.",
  },
  WorkloadEndpoint: {
    orchestrator: "Name of the orchestrator: k8s, or another one such as openstack.",
    workload: "Name of the workload, for orchestrators other than Kubernetes.",
    node: "Node on which the workload runs.",
    containerID: "ID of the container that was connected last.",
    pod: "Name of the pod, for Kubernetes.",
    endpoint: "Name of the interface inside the workload, such as eth0.",
    serviceAccountName: "Service account of the pod.",
    ipNetworks: "Addresses of the workload, as /32 and /128 networks.",
    ipNATs: "Addresses that are translated to addresses of the workload.",
    "ipNATs.internalIP": "Address of the workload.",
    "ipNATs.externalIP": "Address that other hosts use.",
    ipv4Gateway: "IPv4 gateway of the workload.",
    ipv6Gateway: "IPv6 gateway of the workload.",
    profiles: "Profiles that decide if no policy applies, in order.",
    interfaceName: "Name of the interface on the host.",
    mac: "MAC address of the workload.",
    ports: "Named ports of the workload.",
    ...endpointPort,
    "ports.hostPort": "Port of the host that is forwarded to this port.",
    "ports.hostIP": "Address of the host whose port is forwarded.",
    allowSpoofedSourcePrefixes: "Ranges that the workload may use as source addresses besides its own.",
    qosControls: "Limits for the traffic of the workload.",
    "qosControls.ingressBandwidth": "Limit for incoming traffic in bits per second.",
    "qosControls.ingressBurst": "Burst of incoming traffic in bits.",
    "qosControls.ingressPeakrate": "Peak rate of incoming traffic in bits per second.",
    "qosControls.ingressMinburst": "Burst at the peak rate of incoming traffic in bytes.",
    "qosControls.egressBandwidth": "Limit for outgoing traffic in bits per second.",
    "qosControls.egressBurst": "Burst of outgoing traffic in bits.",
    "qosControls.egressPeakrate": "Peak rate of outgoing traffic in bits per second.",
    "qosControls.egressMinburst": "Burst at the peak rate of outgoing traffic in bytes.",
    "qosControls.ingressPacketRate": "Limit for incoming packets per second.",
    "qosControls.ingressPacketBurst": "Burst of incoming packets.",
    "qosControls.egressPacketRate": "Limit for outgoing packets per second.",
    "qosControls.egressPacketBurst": "Burst of outgoing packets.",
    "qosControls.ingressMaxConnections": "Limit for the number of incoming connections.",
    "qosControls.egressMaxConnections": "Limit for the number of outgoing connections.",
    "qosControls.dscp": "DSCP of packets that leave the cluster: 0 to 63, or a name such as AF21.",
  },
  HostEndpoint: endpointPort,
  BGPConfiguration: {
    "serviceLoadBalancerIPs.cidr": "Range of addresses.",
    "serviceExternalIPs.cidr": "Range of addresses.",
    "serviceClusterIPs.cidr": "Range of addresses.",
    "communities.name": "Name of the community.",
    "communities.value": "The community: 65000:100 or 65000:1:2.",
    "prefixAdvertisements.cidr": "Range of addresses.",
    "prefixAdvertisements.communities": "Communities, or names of communities.",
    ...under("nodeMeshPassword", secret),
    localWorkloadPeeringIPV4: "IPv4 address with which workloads establish BGP sessions with their node.",
    localWorkloadPeeringIPV6: "IPv6 address with which workloads establish BGP sessions with their node.",
    ipv4NormalRoutePriority: "Metric of IPv4 routes to workloads in the kernel.",
    ipv6NormalRoutePriority: "Metric of IPv6 routes to workloads in the kernel.",
  },
  BGPPeer: {
    keepOriginalNextHop: "Announces routes with their original next hop. Use nextHopMode instead.",
    ...under("password", secret),
    maxRestartTime: "How long the peer keeps the node's routes while the node restarts.",
    keepaliveTime: "Interval of keepalive messages.",
    numAllowedLocalASNumbers: "How often the node's own AS number may occur in the AS path of a received route.",
    reversePeering: "Auto: nodes that peerSelector selects peer back. Manual: they do not.",
  },
  BGPFilter: {
    ...under("exportV4", filterRule),
    ...under("importV4", filterRule),
    ...under("exportV6", filterRule),
    ...under("importV6", filterRule),
  },
  FelixConfiguration: {
    iptablesLockFilePath: "File that iptables locks. No effect in calico-ts: iptables-restore takes the lock itself.",
    iptablesLockTimeout:
      "Timeout for the iptables lock. No effect in calico-ts: iptables-restore takes the lock itself.",
    bpfKubeProxyEndpointSlicesEnabled:
      "Whether the BPF dataplane reads EndpointSlices. No effect in calico-ts: there is no BPF dataplane.",
    "healthTimeoutOverrides.name": "Name of a part of Felix, as the readiness page shows it.",
    "healthTimeoutOverrides.timeout": "Timeout of the part.",
    ...Object.fromEntries(
      ["failsafeInboundHostPorts", "failsafeOutboundHostPorts"].flatMap((list) =>
        Object.entries(
          under(list, {
            protocol: "TCP or UDP.",
            port: "Port number.",
            net: "Range of remote addresses. The default is all addresses.",
          }),
        ),
      ),
    ),
    ...under("routeTableRange", { min: "First routing table.", max: "Last routing table." }),
    ...under("routeTableRanges", { min: "First routing table of the range.", max: "Last routing table of the range." }),
    ...under("bpfConntrackTimeouts", {
      creationGracePeriod: "Minimum age of an entry before it may expire.",
      tcpSynSent: "Timeout after a TCP SYN.",
      tcpEstablished: "Timeout of an established TCP connection.",
      tcpFinsSeen: "Timeout after both sides of a TCP connection sent FIN.",
      tcpResetSeen: "Timeout after a TCP RST.",
      udpTimeout: "Timeout of UDP flows.",
      genericTimeout: "Timeout of other flows.",
      icmpTimeout: "Timeout of ICMP flows.",
    }),
  },
  ClusterInformation: { variant: "Product variant of Calico that initialised the datastore." },
  KubeControllersConfiguration: { ...under("controllers", controllers), debugProfilePort },
  IPAMConfiguration: {
    kubeVirtVMAddressPersistence:
      "Whether virtual machines of KubeVirt keep their addresses when their pods are replaced.",
  },
  IPAMBlock: {
    cidr: "Addresses of the block.",
    affinity: "Owner of the block, such as host:node1.",
    affinityClaimTime: "When the owner claimed the block.",
    "attributes.handle_id": "Handle of the owner.",
    "attributes.secondary": "Pod, namespace and node of the owner.",
    "attributes.alternateOwnerAttrs": "Pod, namespace and node of the next owner while a virtual machine migrates.",
    "attributes.releasedAt": "When the address was released. It is not assigned during the cooldown.",
    sequenceNumber: "Number of changes to the block.",
    sequenceNumberForAllocation: "Sequence number at which each address was assigned, by ordinal.",
    deleted: "Marks a block that is being deleted.",
    strictAffinity: "Whether only the owner may assign addresses.",
  },
  BlockAffinity: {
    state: "confirmed, pending or pendingDeletion.",
    node: "Node that owns the block.",
    type: "host, or virtual for owners that are not nodes.",
    cidr: "Addresses of the block.",
    deleted: 'Marks an affinity that is being deleted: "true" or "false".',
  },
  IPAMHandle: {
    handleID: "ID of the handle.",
    block: "Number of addresses that the handle has in each block.",
    deleted: "Marks a handle that is being deleted.",
  },
};

const condition: Texts = {
  conditions: "Conditions of the resource.",
  "conditions.type": "Type of the condition.",
  "conditions.status": "True, False or Unknown.",
  "conditions.reason": "Reason in one word.",
  "conditions.message": "Reason in a sentence.",
  "conditions.lastTransitionTime": "When the status changed last.",
  "conditions.observedGeneration": "Generation of the resource to which the condition applies.",
};
const bird: Texts = {
  state: "Ready or NotReady.",
  version: "Version of BIRD.",
  routerID: "Router ID.",
  lastBootTime: "When BIRD started.",
  lastReconfigurationTime: "When BIRD was configured last.",
};
const sessions = (family: string): Texts => ({
  [`bgp.numberEstablished${family}`]: "Number of established sessions.",
  [`bgp.numberNotEstablished${family}`]: "Number of other sessions.",
  [`bgp.peers${family}`]: "Sessions.",
  ...under(`bgp.peers${family}`, {
    peerIP: "Address of the peer.",
    type: "NodeMesh, NodePeer or GlobalPeer.",
    state: "State of the session, such as Established.",
    since: "Since when the session has this state.",
  }),
});
const routes = (family: string): Texts => ({
  [`routes.routes${family}`]: "Routes.",
  ...under(`routes.routes${family}`, {
    type: "FIB: the route is in the kernel. RIB: the route is only in BIRD.",
    destination: "Destination of the route.",
    gateway: "Next hop.",
    interface: "Interface.",
    learnedFrom: "Source of the route.",
    "learnedFrom.sourceType": "Kernel, Static, Direct, NodeMesh or BGPPeer.",
    "learnedFrom.peerIP": "Address of the peer.",
  }),
});

/** By kind and path in the status. */
export const STATUS_DESCRIPTIONS: Partial<Record<SchemaKind, Texts>> = {
  IPPool: condition,
  Tier: condition,
  Node: {
    wireguardPublicKey: "WireGuard public key for IPv4. Written by Felix.",
    wireguardPublicKeyV6: "WireGuard public key for IPv6. Written by Felix.",
    podCIDRs: "Ranges that Kubernetes assigned to the node.",
  },
  CalicoNodeStatus: {
    lastUpdated: "When the node reported last.",
    agent: "State of BIRD.",
    "agent.birdV4": "BIRD for IPv4.",
    ...under("agent.birdV4", bird),
    "agent.birdV6": "BIRD for IPv6.",
    ...under("agent.birdV6", bird),
    bgp: "BGP sessions.",
    ...sessions("V4"),
    ...sessions("V6"),
    routes: "Routes that BIRD has.",
    ...routes("V4"),
    ...routes("V6"),
  },
  KubeControllersConfiguration: {
    runningConfig: "Settings in effect.",
    ...under("runningConfig", {
      logSeverityScreen: "Log severity.",
      healthChecks: "Whether the controllers report their health.",
      etcdV3CompactionPeriod: "Interval of etcd compaction.",
      prometheusMetricsPort: "Port for metrics.",
      controllers: "Controllers that run.",
      ...under("controllers", controllers),
      debugProfilePort,
    }),
    environmentVars: "Environment variables that override the resource.",
  },
};
