// Reads the recordings of Calico, if they are next to the checkout: dataplane messages as JSON with numbered field names.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { DataplaneMessage, ProtoRule, TierInfo } from "../../../src/calc/index.ts";
import type { InterfaceMessage } from "../../../src/dataplane/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";

export const FELIX = join(import.meta.dir, "../../../../shared/golden/felix");
export const haveRecordings = existsSync(join(FELIX, "states"));
if (!haveRecordings) console.log("skipped: no recordings beside the checkout (../shared/golden)");

export const recordedStates = (): string[] =>
  haveRecordings
    ? readdirSync(join(FELIX, "states")).filter((name) => existsSync(join(FELIX, "messages", `${name}.jsonl`)))
    : [];

export const stateFile = (state: string, file: string): string | undefined => {
  const path = join(FELIX, "states", state, file);
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
};

type Json = any; // oxlint-disable-line typescript/no-explicit-any -- recorded JSON, checked by use
/** Removes the numbers from field names. */
function plain(value: Json): Json {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.replace(/^\d+\./, ""), plain(inner)]));
}

export function recordedMessages(state: string): DataplaneMessage[] {
  // Sets with overlapping members differ by mode: only nftables omits members.
  const iptables = join(FELIX, "messages", `${state}.nftables-disabled.jsonl`);
  const path = existsSync(iptables) ? iptables : join(FELIX, "messages", `${state}.jsonl`);
  const lines = readFileSync(path, "utf8").trim().split("\n");
  return lines.flatMap((line) => {
    const { type, body } = JSON.parse(line) as { type: string; body: Json };
    const decode = DECODERS[type];
    return decode === undefined ? [] : [decode(plain(body))];
  });
}

const ports = (list: Json) => (list ?? []).map((p: Json) => ({ first: p.first ?? 0, last: p.last ?? 0 }));
function rule(r: Json): ProtoRule {
  const icmp = (t: Json, tc: Json) =>
    tc !== undefined ? { type: tc.type ?? 0, code: tc.code ?? 0 } : t !== undefined ? { type: t } : undefined;
  const found = icmp(r.icmp_type, r.icmp_type_code);
  const notFound = icmp(r.not_icmp_type, r.not_icmp_type_code);
  const version =
    { IPV4: 4, IPV6: 6 }[String(r.ip_version)] ?? (r.ip_version === 4 || r.ip_version === 6 ? r.ip_version : undefined);
  return {
    action: r.action === "" || r.action === undefined ? "allow" : r.action,
    ipVersion: version as 4 | 6 | undefined,
    protocol: r.protocol,
    notProtocol: r.not_protocol,
    icmp: found,
    notIcmp: notFound,
    srcNet: r.src_net ?? [],
    srcPorts: ports(r.src_ports),
    dstNet: r.dst_net ?? [],
    dstPorts: ports(r.dst_ports),
    srcIpSetIds: r.src_ip_set_ids ?? [],
    dstIpSetIds: r.dst_ip_set_ids ?? [],
    srcNamedPortIpSetIds: r.src_named_port_ip_set_ids ?? [],
    dstNamedPortIpSetIds: r.dst_named_port_ip_set_ids ?? [],
    dstIpPortSetIds: r.dst_ip_port_set_ids ?? [],
    notSrcNet: r.not_src_net ?? [],
    notSrcPorts: ports(r.not_src_ports),
    notDstNet: r.not_dst_net ?? [],
    notDstPorts: ports(r.not_dst_ports),
    notSrcIpSetIds: r.not_src_ip_set_ids ?? [],
    notDstIpSetIds: r.not_dst_ip_set_ids ?? [],
    notSrcNamedPortIpSetIds: r.not_src_named_port_ip_set_ids ?? [],
    notDstNamedPortIpSetIds: r.not_dst_named_port_ip_set_ids ?? [],
    original: {},
    annotations: r.metadata?.annotations,
    ruleId: r.rule_id ?? "",
  };
}
const rules = (list: Json): ProtoRule[] => (list ?? []).map(rule);
const policyId = (id: Json) => ({ name: id.name ?? "", namespace: id.namespace ?? "", kind: id.kind });
const tiers = (list: Json): TierInfo[] =>
  (list ?? []).map((t: Json) => ({
    name: t.name,
    ingressPolicies: (t.ingress_policies ?? []).map(policyId),
    egressPolicies: (t.egress_policies ?? []).map(policyId),
    defaultAction: t.default_action === "Pass" ? "Pass" : "Deny",
  }));
const nat = (list: Json) =>
  (list ?? []).map((n: Json) => ({ external: n.ext_ip as IpAddress, internal: n.int_ip as IpAddress }));
const qosPolicies = (list: Json) =>
  (list ?? []).map((p: Json) => ({ destination: p.destination ?? "", dscp: p.dscp ?? 0 }));
const wepId = (id: Json) => ({
  orchestrator: id.orchestrator_id ?? "",
  workload: id.workload_id ?? "",
  endpoint: id.endpoint_id ?? "",
});
const lowerFirst = (object: Json) =>
  Object.fromEntries(Object.entries(object).map(([k, v]) => [k.charAt(0).toLowerCase() + k.slice(1), v]));

const DECODERS: Readonly<Record<string, (b: Json) => DataplaneMessage>> = {
  InSync: () => ({ type: "inSync" }),
  ConfigUpdate: (b) => ({ type: "configUpdate", config: b.config ?? {}, sourceToRawConfig: {} }),
  IPSetUpdate: (b) => ({
    type: "ipSetUpdate",
    id: b.id,
    members: b.members ?? [],
    setType: ({ NET: "net", IP_AND_PORT: "ipAndPort", IP: "ip" } as const)[(b.type ?? "IP") as "IP"],
  }),
  IPSetDeltaUpdate: (b) => ({
    type: "ipSetDeltaUpdate",
    id: b.id,
    added: b.added_members ?? [],
    removed: b.removed_members ?? [],
  }),
  IPSetRemove: (b) => ({ type: "ipSetRemove", id: b.id }),
  ActivePolicyUpdate: (b) => ({
    type: "activePolicyUpdate",
    id: policyId(b.id),
    policy: {
      inboundRules: rules(b.policy.inbound_rules),
      outboundRules: rules(b.policy.outbound_rules),
      untracked: b.policy.untracked ?? false,
      preDnat: b.policy.pre_dnat ?? false,
      namespace: b.policy.namespace ?? "",
      originalSelector: b.policy.original_selector ?? "",
      performanceHints: b.policy.perf_hints ?? [],
      tier: b.policy.tier ?? "",
    },
  }),
  ActivePolicyRemove: (b) => ({ type: "activePolicyRemove", id: policyId(b.id) }),
  ActiveProfileUpdate: (b) => ({
    type: "activeProfileUpdate",
    name: b.id.name,
    profile: { inboundRules: rules(b.profile.inbound_rules), outboundRules: rules(b.profile.outbound_rules) },
  }),
  ActiveProfileRemove: (b) => ({ type: "activeProfileRemove", name: b.id.name }),
  WorkloadEndpointUpdate: (b) => {
    const e = b.endpoint;
    return {
      type: "workloadEndpointUpdate",
      id: wepId(b.id),
      endpoint: {
        state: e.state,
        name: e.name,
        mac: e.mac ?? "",
        profileIds: e.profile_ids ?? [],
        ipv4Nets: e.ipv4_nets ?? [],
        ipv6Nets: e.ipv6_nets ?? [],
        tiers: tiers(e.tiers),
        ipv4Nat: nat(e.ipv4_nat),
        ipv6Nat: nat(e.ipv6_nat),
        allowSpoofedSourcePrefixes: e.allow_spoofed_source_prefixes ?? [],
        annotations: e.annotations ?? {},
        qosControls: e.qos_controls === undefined ? undefined : lowerFirst(e.qos_controls),
        localBgpPeer: e.local_bgp_peer === undefined ? undefined : { bgpPeerName: e.local_bgp_peer.bgp_peer_name },
        qosPolicies: qosPolicies(e.qos_policies),
        isIstioAmbient: e.is_istio_ambient ?? false,
        liveMigrationRole: "none",
      },
    };
  },
  WorkloadEndpointRemove: (b) => ({ type: "workloadEndpointRemove", id: wepId(b.id) }),
  HostEndpointUpdate: (b) => ({
    type: "hostEndpointUpdate",
    endpointId: b.id.endpoint_id,
    endpoint: {
      name: b.endpoint.name ?? "",
      profileIds: b.endpoint.profile_ids ?? [],
      tiers: tiers(b.endpoint.tiers),
      untrackedTiers: tiers(b.endpoint.untracked_tiers),
      preDnatTiers: tiers(b.endpoint.pre_dnat_tiers),
      forwardTiers: tiers(b.endpoint.forward_tiers),
      expectedIpv4Addrs: b.endpoint.expected_ipv4_addrs ?? [],
      expectedIpv6Addrs: b.endpoint.expected_ipv6_addrs ?? [],
      qosPolicies: qosPolicies(b.endpoint.qos_policies),
    },
  }),
  HostEndpointRemove: (b) => ({ type: "hostEndpointRemove", endpointId: b.id.endpoint_id }),
  HostMetadataUpdate: (b) => ({
    type: "hostMetadataUpdate",
    hostname: b.hostname,
    ipv4Addr: b.ipv4_addr ?? "",
    ipv6Addr: b.ipv6_addr ?? "",
    asNumber: b.asnumber ?? "",
    labels: b.labels ?? {},
  }),
  IPAMPoolUpdate: (b) => ({
    type: "poolUpdate",
    id: b.id,
    cidr: b.pool.cidr as Cidr,
    masquerade: b.pool.masquerade ?? false,
    ipipMode: b.pool.ipip_mode ?? "",
    vxlanMode: b.pool.vxlan_mode ?? "",
    allowedUses: b.pool.allowed_uses ?? [],
  }),
  IPAMPoolRemove: (b) => ({ type: "poolRemove", id: b.id }),
  RouteUpdate: (b) => ({
    type: "routeUpdate",
    types: b.types ?? 0,
    poolType:
      ({ NO_ENCAP: "no-encap", VXLAN: "vxlan", IPIP: "ipip" } as const)[String(b.ip_pool_type) as "VXLAN"] ?? "none",
    dst: b.dst as Cidr,
    dstNodeName: b.dst_node_name ?? "",
    dstNodeIp: b.dst_node_ip ?? "",
    sameSubnet: b.same_subnet ?? false,
    natOutgoing: b.nat_outgoing ?? false,
    localWorkload: b.local_workload ?? false,
    borrowed: b.borrowed ?? false,
  }),
  RouteRemove: (b) => ({ type: "routeRemove", dst: b.dst as Cidr }),
  VXLANTunnelEndpointUpdate: (b) => ({
    type: "vtepUpdate",
    node: b.node,
    mac: b.mac ?? "",
    ipv4Addr: b.ipv4_addr ?? "",
    parentDeviceIp: b.parent_device_ip ?? "",
    macV6: b.mac_v6 ?? "",
    ipv6Addr: b.ipv6_addr ?? "",
    parentDeviceIpv6: b.parent_device_ipv6 ?? "",
  }),
  GlobalBGPConfigUpdate: (b) => ({
    type: "globalBgpConfigUpdate",
    serviceClusterCidrs: b.service_cluster_cidrs ?? [],
    serviceExternalCidrs: b.service_external_cidrs ?? [],
    serviceLoadBalancerCidrs: b.service_loadbalancer_cidrs ?? [],
    localWorkloadPeeringIpV4: b.local_workload_peering_ip_v4 ?? "",
    localWorkloadPeeringIpV6: b.local_workload_peering_ip_v6 ?? "",
  }),
  Encapsulation: (b) => ({
    type: "encapsulation",
    ipipEnabled: b.ipip_enabled ?? false,
    vxlanEnabled: b.vxlan_enabled ?? false,
    vxlanEnabledV6: b.vxlan_enabled_v6 ?? false,
    noEncapNeeded: b.no_encap_enabled ?? false,
  }),
};

/** The interfaces of every recorded host, and those of its workloads that are up. */
export function recordedInterfaces(messages: readonly DataplaneMessage[]): InterfaceMessage[] {
  const addresses = (name: string, list: readonly string[]): InterfaceMessage => ({
    type: "interfaceAddresses",
    name,
    addresses: new Set(list as IpAddress[]),
  });
  const found: InterfaceMessage[] = [
    { type: "interfaceState", name: "lo", index: 1, state: "up" },
    addresses("lo", ["127.0.0.0", "127.0.0.1", "::1"]),
    { type: "interfaceState", name: "eth0", index: 2, state: "up" },
    addresses("eth0", ["192.0.2.10", "2001:db8::10", "fe80::ff:fe00:a"]),
  ];
  // The addresses of the tunnel devices.
  const tunnel = configured(messages, "IPv4VXLANTunnelAddr");
  const tunnel6 = configured(messages, "IPv6VXLANTunnelAddr");
  if (tunnel !== undefined || tunnel6 !== undefined)
    found.push(
      addresses(
        "vxlan",
        [tunnel, tunnel6].flatMap((a) => (a === undefined ? [] : [a])),
      ),
    );
  for (const message of messages)
    if (message.type === "workloadEndpointUpdate")
      found.push({ type: "interfaceState", name: message.endpoint.name, index: 3, state: "up" });
  return found;
}

const configured = (messages: readonly DataplaneMessage[], name: string): string | undefined => {
  for (const message of messages) if (message.type === "configUpdate") return message.config[name];
  return undefined;
};
