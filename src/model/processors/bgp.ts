// BGP resources that Felix reads: they pass unchanged, unless a field that Felix reads has the wrong type.
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
