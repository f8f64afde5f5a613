// Encodes messages for an external dataplane driver: protobuf with the field numbers of Calico's protocol.
import { ProtoWriter } from "../../lib/encoding/protobuf.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { QosControls } from "../../model/index.ts";
import type {
  DataplaneMessage,
  IpSetType,
  NatInfo,
  PolicyId,
  ProtoHostEndpoint,
  ProtoWorkloadEndpoint,
  QosPolicy,
  RoutePoolType,
  TierInfo,
  WorkloadEndpointId,
} from "../messages.ts";
import { writeRule } from "./rule.ts";

/** The field number of each message in the envelope. */
const PAYLOAD_TAGS = {
  inSync: 1,
  ipSetUpdate: 2,
  ipSetDeltaUpdate: 3,
  ipSetRemove: 4,
  activeProfileUpdate: 5,
  activeProfileRemove: 6,
  activePolicyUpdate: 7,
  activePolicyRemove: 8,
  hostEndpointUpdate: 9,
  hostEndpointRemove: 10,
  workloadEndpointUpdate: 11,
  workloadEndpointRemove: 12,
  configUpdate: 13,
  hostMetadataUpdate: 14,
  poolUpdate: 16,
  poolRemove: 17,
  hostMetadataRemove: 18,
  serviceAccountUpdate: 19,
  serviceAccountRemove: 20,
  namespaceUpdate: 21,
  namespaceRemove: 22,
  routeUpdate: 23,
  routeRemove: 24,
  vtepUpdate: 25,
  vtepRemove: 26,
  wireguardUpdate: { 4: 27, 6: 33 },
  wireguardRemove: { 4: 28, 6: 34 },
  globalBgpConfigUpdate: 29,
  encapsulation: 30,
  serviceUpdate: 31,
  serviceRemove: 32,
} as const;
const SEQUENCE_NUMBER = 15;

const SET_TYPES: Readonly<Record<IpSetType, number>> = { ip: 0, ipAndPort: 1, net: 2 };
const POOL_TYPES: Readonly<Record<RoutePoolType, number>> = { none: 0, "no-encap": 1, vxlan: 2, ipip: 3 };
const MIGRATION_ROLES = { none: 0, source: 1, target: 2 } as const;

/** Encodes an envelope with one message. */
export function encodeToDataplane(message: DataplaneMessage, sequenceNumber: number): Uint8Array {
  const w = new ProtoWriter();
  const tag = payloadTag(message);
  // Fields are written in the order of their numbers.
  if (tag > SEQUENCE_NUMBER) w.int(SEQUENCE_NUMBER, sequenceNumber);
  w.message(tag, () => writePayload(w, message));
  if (tag < SEQUENCE_NUMBER) w.int(SEQUENCE_NUMBER, sequenceNumber);
  return w.finish();
}

function payloadTag(message: DataplaneMessage): number {
  const tag = PAYLOAD_TAGS[message.type];
  return typeof tag === "number" ? tag : tag["ipVersion" in message ? message.ipVersion : 4];
}

function writePayload(w: ProtoWriter, m: DataplaneMessage): void {
  switch (m.type) {
    case "inSync":
      return;
    case "configUpdate":
      w.stringMap(1, m.config);
      for (const [source, raw] of Object.entries(m.sourceToRawConfig))
        w.message(2, () => {
          w.int(1, Number(source));
          w.message(2, () => {
            w.string(1, raw.source);
            w.stringMap(2, raw.config);
          });
        });
      return;
    case "ipSetUpdate":
      w.string(1, m.id);
      w.strings(2, m.members);
      w.int(3, SET_TYPES[m.setType]);
      return;
    case "ipSetDeltaUpdate":
      w.string(1, m.id);
      w.strings(2, m.added);
      w.strings(3, m.removed);
      return;
    case "ipSetRemove":
      return w.string(1, m.id);
    case "activeProfileUpdate":
      w.message(1, () => w.string(1, m.name));
      w.message(2, () => {
        w.messages(1, m.profile.inboundRules, (rule) => writeRule(w, rule));
        w.messages(2, m.profile.outboundRules, (rule) => writeRule(w, rule));
      });
      return;
    case "activeProfileRemove":
      return w.message(1, () => w.string(1, m.name));
    case "activePolicyUpdate":
      w.message(1, () => writePolicyId(w, m.id));
      w.message(2, () => {
        w.messages(1, m.policy.inboundRules, (rule) => writeRule(w, rule));
        w.messages(2, m.policy.outboundRules, (rule) => writeRule(w, rule));
        w.bool(3, m.policy.untracked);
        w.bool(4, m.policy.preDnat);
        w.string(5, m.policy.namespace);
        w.string(6, m.policy.originalSelector);
        w.strings(7, m.policy.performanceHints);
        w.string(8, m.policy.tier);
      });
      return;
    case "activePolicyRemove":
      return w.message(1, () => writePolicyId(w, m.id));
    case "workloadEndpointUpdate":
      w.message(1, () => writeWorkloadId(w, m.id));
      w.message(5, () => writeWorkload(w, m.endpoint));
      return;
    case "workloadEndpointRemove":
      return w.message(1, () => writeWorkloadId(w, m.id));
    case "hostEndpointUpdate":
      w.message(1, () => w.string(2, m.endpointId));
      w.message(3, () => writeHostEndpoint(w, m.endpoint));
      return;
    case "hostEndpointRemove":
      return w.message(1, () => w.string(2, m.endpointId));
    case "hostMetadataUpdate":
      w.string(1, m.hostname);
      w.string(2, m.ipv4Addr);
      w.string(3, m.ipv6Addr);
      w.string(4, m.asNumber);
      w.stringMap(5, m.labels);
      return;
    case "hostMetadataRemove":
      w.string(1, m.hostname); // the protocol has a field for the address, but Calico leaves it empty
      return;
    case "poolUpdate":
      w.string(1, m.id);
      w.message(2, () => {
        w.string(1, m.cidr);
        w.bool(2, m.masquerade);
        w.string(3, m.ipipMode);
        w.string(4, m.vxlanMode);
        w.strings(5, m.allowedUses);
      });
      return;
    case "poolRemove":
      return w.string(1, m.id);
    case "serviceAccountUpdate":
      w.message(1, () => writeNames(w, m.namespace, m.name));
      w.stringMap(2, m.labels);
      return;
    case "serviceAccountRemove":
      return w.message(1, () => writeNames(w, m.namespace, m.name));
    case "namespaceUpdate":
      w.message(1, () => w.string(1, m.name));
      w.stringMap(2, m.labels);
      return;
    case "namespaceRemove":
      return w.message(1, () => w.string(1, m.name));
    case "routeUpdate": {
      const { tunnelType } = m;
      w.int(2, POOL_TYPES[m.poolType]);
      w.string(3, m.dst);
      w.string(4, m.dstNodeName);
      w.string(5, m.dstNodeIp);
      w.bool(7, m.sameSubnet);
      w.bool(8, m.natOutgoing);
      w.bool(9, m.localWorkload);
      if (tunnelType !== undefined)
        w.message(10, () => {
          w.bool(1, tunnelType.ipip);
          w.bool(2, tunnelType.vxlan);
          w.bool(3, tunnelType.wireguard);
        });
      w.bool(11, m.borrowed);
      w.int(12, m.types);
      return;
    }
    case "routeRemove":
      return w.string(2, m.dst);
    case "vtepUpdate":
      w.string(1, m.node);
      w.string(2, m.mac);
      w.string(3, m.ipv4Addr);
      w.string(4, m.parentDeviceIp);
      w.string(5, m.macV6);
      w.string(6, m.ipv6Addr);
      w.string(7, m.parentDeviceIpv6);
      return;
    case "vtepRemove":
      return w.string(1, m.node);
    case "wireguardUpdate":
      w.string(1, m.hostname);
      w.string(2, m.publicKey);
      w.string(3, m.interfaceAddr);
      return;
    case "wireguardRemove":
      return w.string(1, m.hostname);
    case "globalBgpConfigUpdate":
      w.strings(1, m.serviceClusterCidrs);
      w.strings(2, m.serviceExternalCidrs);
      w.strings(3, m.serviceLoadBalancerCidrs);
      w.string(4, m.localWorkloadPeeringIpV4);
      w.string(5, m.localWorkloadPeeringIpV6);
      return;
    case "encapsulation":
      w.bool(1, m.ipipEnabled);
      w.bool(2, m.vxlanEnabled);
      w.bool(3, m.vxlanEnabledV6);
      w.bool(4, m.noEncapNeeded);
      return;
    case "serviceUpdate":
      w.string(1, m.name);
      w.string(2, m.namespace);
      w.string(3, m.serviceType);
      w.strings(4, m.clusterIps);
      w.string(5, m.loadBalancerIp);
      w.strings(6, m.externalIps);
      w.messages(7, m.ports, (port) => {
        w.string(1, port.protocol);
        w.int(2, port.port);
        w.int(3, port.nodePort);
      });
      w.strings(8, m.loadBalancerIngressIps);
      return;
    case "serviceRemove":
      w.string(1, m.name);
      w.string(2, m.namespace);
      return;
    default:
      return unreachable(m);
  }
}

function writeNames(w: ProtoWriter, namespace: string, name: string): void {
  w.string(1, namespace);
  w.string(2, name);
}

function writePolicyId(w: ProtoWriter, id: PolicyId): void {
  w.string(2, id.name);
  w.string(3, id.namespace);
  w.string(4, id.kind);
}

export function writeWorkloadId(w: ProtoWriter, id: WorkloadEndpointId): void {
  w.string(2, id.orchestrator);
  w.string(3, id.workload);
  w.string(4, id.endpoint);
}

export function writeWorkload(w: ProtoWriter, endpoint: ProtoWorkloadEndpoint): void {
  const { qosControls, localBgpPeer, skipRedirect } = endpoint;
  w.string(1, endpoint.state);
  w.string(2, endpoint.name);
  w.string(3, endpoint.mac);
  w.strings(4, endpoint.profileIds);
  w.strings(5, endpoint.ipv4Nets);
  w.strings(6, endpoint.ipv6Nets);
  writeTiers(w, 7, endpoint.tiers);
  writeNats(w, 8, endpoint.ipv4Nat);
  writeNats(w, 9, endpoint.ipv6Nat);
  w.strings(10, endpoint.allowSpoofedSourcePrefixes);
  w.stringMap(11, endpoint.annotations);
  if (qosControls !== undefined) w.message(12, () => writeQosControls(w, qosControls));
  if (localBgpPeer !== undefined) w.message(13, () => w.string(1, localBgpPeer.bgpPeerName));
  if (skipRedirect !== undefined)
    w.message(14, () => {
      w.bool(1, skipRedirect.egress);
      w.bool(2, skipRedirect.ingress);
    });
  writeQosPolicies(w, 15, endpoint.qosPolicies);
  w.bool(16, endpoint.isIstioAmbient);
  w.int(17, MIGRATION_ROLES[endpoint.liveMigrationRole]);
  w.string(18, endpoint.liveMigrationUid);
  w.string(19, endpoint.liveMigrationVmiName);
}

function writeHostEndpoint(w: ProtoWriter, endpoint: ProtoHostEndpoint): void {
  w.string(1, endpoint.name);
  w.strings(2, endpoint.profileIds);
  writeTiers(w, 3, endpoint.tiers);
  w.strings(4, endpoint.expectedIpv4Addrs);
  w.strings(5, endpoint.expectedIpv6Addrs);
  writeTiers(w, 6, endpoint.untrackedTiers);
  writeTiers(w, 7, endpoint.preDnatTiers);
  writeTiers(w, 8, endpoint.forwardTiers);
  writeQosPolicies(w, 9, endpoint.qosPolicies);
}

function writeTiers(w: ProtoWriter, field: number, tiers: readonly TierInfo[]): void {
  w.messages(field, tiers, (tier) => {
    w.string(1, tier.name);
    w.messages(2, tier.ingressPolicies, (id) => writePolicyId(w, id));
    w.messages(3, tier.egressPolicies, (id) => writePolicyId(w, id));
    w.string(4, tier.defaultAction);
  });
}

function writeNats(w: ProtoWriter, field: number, nats: readonly NatInfo[]): void {
  w.messages(field, nats, (nat) => {
    w.string(1, nat.external);
    w.string(2, nat.internal);
  });
}

function writeQosControls(w: ProtoWriter, qos: QosControls): void {
  w.int(1, qos.ingressBandwidth);
  w.int(2, qos.egressBandwidth);
  w.int(3, qos.ingressBurst);
  w.int(4, qos.egressBurst);
  w.int(5, qos.ingressPacketRate);
  w.int(6, qos.egressPacketRate);
  w.int(7, qos.ingressMaxConnections);
  w.int(8, qos.egressMaxConnections);
  w.int(9, qos.ingressPeakrate);
  w.int(10, qos.egressPeakrate);
  w.int(11, qos.ingressMinburst);
  w.int(12, qos.egressMinburst);
  w.int(13, qos.ingressPacketBurst);
  w.int(14, qos.egressPacketBurst);
}

function writeQosPolicies(w: ProtoWriter, field: number, policies: readonly QosPolicy[]): void {
  w.messages(field, policies, (policy) => {
    w.string(1, policy.destination);
    w.int(2, policy.dscp);
  });
}
