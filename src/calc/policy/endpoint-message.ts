// Creates the dataplane messages for local endpoints.
import type { HostEndpoint, Labels, NatEntry, QosControls, WorkloadEndpoint } from "../../model/index.ts";
import type { NatInfo, ProtoHostEndpoint, ProtoWorkloadEndpoint, QosPolicy } from "../messages.ts";
import type { EndpointTiers } from "./tiers.ts";

/** Results of other parts of the graph for a local workload. */
export interface ComputedEndpointData {
  readonly bgpPeer?: string;
  readonly isIstioAmbient?: boolean;
  readonly liveMigration?: { readonly role: "source" | "target"; readonly uid: string };
}

export function workloadMessage(
  endpoint: WorkloadEndpoint,
  tiers: EndpointTiers,
  computed: ComputedEndpointData,
): ProtoWorkloadEndpoint {
  const { labels, qosControls: qos } = endpoint;
  const skipRedirect = {
    ingress: labels["kubevirt.io"] === "virt-launcher" || isLimited(qos?.ingressBandwidth, qos?.ingressPacketRate),
    egress: isLimited(qos?.egressBandwidth, qos?.egressPacketRate),
  };
  const { liveMigration } = computed;
  const vmiName = virtualMachineName(labels);
  return {
    state: endpoint.state,
    name: endpoint.name,
    mac: endpoint.mac ?? "",
    profileIds: endpoint.profileIds,
    ipv4Nets: endpoint.ipv4Nets,
    ipv6Nets: endpoint.ipv6Nets,
    tiers: tiers.normal,
    ipv4Nat: nats(endpoint.ipv4Nat),
    ipv6Nat: nats(endpoint.ipv6Nat),
    allowSpoofedSourcePrefixes: endpoint.allowSpoofedSourcePrefixes ?? [],
    annotations: endpoint.annotations ?? {},
    qosControls: qos,
    localBgpPeer: computed.bgpPeer === undefined ? undefined : { bgpPeerName: computed.bgpPeer },
    ...((skipRedirect.ingress || skipRedirect.egress) && { skipRedirect }),
    qosPolicies: qosPolicies(qos),
    isIstioAmbient: computed.isIstioAmbient ?? false,
    liveMigrationRole: liveMigration?.role ?? "none",
    liveMigrationUid: liveMigration?.uid,
    liveMigrationVmiName: vmiName,
  };
}

export function hostMessage(endpoint: HostEndpoint, tiers: EndpointTiers): ProtoHostEndpoint {
  return {
    name: endpoint.name,
    profileIds: endpoint.profileIds,
    tiers: tiers.normal,
    untrackedTiers: tiers.untracked,
    preDnatTiers: tiers.preDnat,
    forwardTiers: tiers.forward,
    expectedIpv4Addrs: endpoint.expectedIpv4Addrs,
    expectedIpv6Addrs: endpoint.expectedIpv6Addrs,
    qosPolicies: qosPolicies(endpoint.qosControls),
  };
}

const isLimited = (...limits: readonly (number | undefined)[]): boolean =>
  limits.some((limit) => limit !== undefined && limit !== 0);

const nats = (entries: readonly NatEntry[] | undefined): NatInfo[] =>
  (entries ?? []).map(({ external, internal }) => ({ external, internal }));

const qosPolicies = (qos: QosControls | undefined): QosPolicy[] =>
  qos?.dscp === undefined ? [] : [{ destination: "", dscp: qos.dscp }];

const virtualMachineName = (labels: Labels): string | undefined =>
  labels["vmi.kubevirt.io/id"] ?? labels["vm.kubevirt.io/name"];
