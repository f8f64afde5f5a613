// Emits the BGP resources that Felix reads, unchanged. A resource in which a field that Felix reads has the wrong type is
// rejected.
import { readBgpConfiguration } from "../readers/bgp-configuration.ts";
import { readBgpPeer } from "../readers/bgp-peer.ts";
import { rejectWrongTypes } from "../readers/unreadable.ts";
import { passThroughIf } from "./processor.ts";

const checkConfiguration = rejectWrongTypes(
  "spec.serviceClusterIPs",
  "spec.serviceExternalIPs",
  "spec.serviceLoadBalancerIPs",
  "spec.localWorkloadPeeringIPV4",
  "spec.localWorkloadPeeringIPV6",
);
const checkPeer = rejectWrongTypes("spec.node", "spec.nodeSelector", "spec.localWorkloadSelector");

export const bgpConfigurationProcessor = passThroughIf((resource) =>
  readBgpConfiguration(resource, checkConfiguration),
);
export const bgpPeerProcessor = passThroughIf((resource) => readBgpPeer(resource, checkPeer));
