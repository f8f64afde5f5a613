// Defines scenarios of a cluster; conf/ contains BIRD's configuration for each. The node is kube-master, with four blocks and
// one single address.
import { BgpCollector, type BgpPlan, type LocalInputs, plan } from "../../../src/bgp/index.ts";
import { parseAddress } from "../../../src/lib/ip/ip.ts";
import { API_VERSION, type KindName, type Labels } from "../../../src/model/index.ts";

const NODE = "kube-master";
const BLOCKS = [
  "10.0.0.0/30",
  "10.1.0.0/24",
  "10.2.0.1/32",
  "192.168.221.64/26",
  "192.168.221.192/26",
  "fd00:96::/122",
];

interface Node {
  readonly bgp?: object;
  readonly labels?: Labels;
  readonly wireguard?: object;
}
export interface Scenario {
  readonly nodes?: Readonly<Record<string, Node>>;
  readonly configuration?: object;
  readonly nodeConfiguration?: object;
  readonly pools?: readonly object[];
  readonly peers?: Readonly<Record<string, object>>;
  readonly filters?: Readonly<Record<string, object>>;
  readonly inputs?: LocalInputs;
}

const at = (number: number, more: object = {}, labels?: Labels): Node => ({
  bgp: { ipv4Address: `10.192.0.${number}/16`, ipv6Address: `2001::103:${number}/64`, ...more },
  labels,
});
const v4 = (number: number, more: object = {}, labels?: Labels): Node => ({
  bgp: { ipv4Address: `10.192.0.${number}/16`, ...more },
  labels,
});
const CLUSTER = { [NODE]: v4(2), "kube-node-1": v4(3), "kube-node-2": v4(4) };
const DUAL = { [NODE]: at(2), "kube-node-1": at(3), "kube-node-2": at(4) };
const NO_MESH = { nodeToNodeMeshEnabled: false };
const POOL = [{ cidr: "192.168.0.0/16" }];
const ipip = (ipipMode: string) => [{ cidr: "192.168.0.0/16", ipipMode }];
const secret = (key: string) => ({ secretKeyRef: { name: "my-secrets", key } });
const ALL_SECRETS: LocalInputs = { hasSecret: () => true };
const RACKS = {
  [NODE]: at(2, {}, { rack: "a" }),
  "kube-node-1": at(3, {}, { rack: "a", tor: "yes" }),
  "kube-node-2": at(4, {}, { rack: "b" }),
};
const REFLECTORS = {
  [NODE]: at(2),
  "kube-node-1": at(3, { routeReflectorClusterID: "10.0.0.1" }, { rr: "yes" }),
  "kube-node-2": at(4, { routeReflectorClusterID: "10.0.0.1" }, { rr: "yes" }),
};
const REFLECTOR = { ...DUAL, [NODE]: at(2, { routeReflectorClusterID: "10.0.0.1" }, { rr: "yes" }) };
const tor = (spec: object = {}) => ({
  tor: { peerIP: "10.225.0.1", asNumber: 65100, ...spec },
  tor6: { peerIP: "2001::999", asNumber: 65100, ...spec },
});
const services = {
  serviceClusterIPs: [{ cidr: "10.101.0.0/16" }, { cidr: "fd00:96::/112" }],
  serviceExternalIPs: [{ cidr: "80.15.0.0/24" }, { cidr: "5.5.5.5/32" }],
};
const ADDRESSES: LocalInputs = { serviceAddresses: ["10.101.0.101/32", "80.15.0.1/32", "5.5.5.5/32"] };

const RULES = {
  exportV4: [
    { action: "Accept", matchOperator: "In", cidr: "77.0.0.0/16" },
    { action: "Reject", matchOperator: "Equal", cidr: "77.1.0.0/16" },
  ],
  importV4: [{ action: "Accept", matchOperator: "NotIn", cidr: "44.0.0.0/16" }],
  exportV6: [{ action: "Accept", matchOperator: "In", cidr: "7700::/64" }],
  importV6: [{ action: "Reject", matchOperator: "NotEqual", cidr: "4400::/64" }],
};
const only = (...names: readonly (keyof typeof RULES)[]) =>
  Object.fromEntries(names.map((name) => [name, RULES[name]]));
const filtered = (filters: Readonly<Record<string, object>>, peer: object = {}): Scenario => ({
  nodes: DUAL,
  configuration: NO_MESH,
  pools: POOL,
  filters,
  peers: tor({ filters: Object.keys(filters), ...peer }),
});
/** The same filters for a global peer and for a peer of this node. */
const both = (name: string, filters: Readonly<Record<string, object>>): Readonly<Record<string, Scenario>> => ({
  [`bgpfilter/${name}/global_peer`]: filtered(filters),
  [`bgpfilter/${name}/explicit_peer`]: filtered(filters, { node: NODE }),
});

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "mesh/bgp-export": {
    nodes: CLUSTER,
    pools: [{ cidr: "192.168.0.0/16", disableBGPExport: true }, { cidr: "172.16.0.0/16" }],
  },
  "mesh/ipip-always": { nodes: CLUSTER, pools: ipip("Always") },
  "mesh/ipip-cross-subnet": { nodes: CLUSTER, pools: ipip("CrossSubnet") },
  "mesh/ipip-off": { nodes: CLUSTER, pools: ipip("Never") },
  "mesh/vxlan-always": {
    nodes: DUAL,
    pools: [
      { cidr: "192.168.0.0/16", vxlanMode: "Always" },
      { cidr: "2002::/64", vxlanMode: "Always" },
    ],
  },
  "mesh/hash": { nodes: CLUSTER, pools: POOL, inputs: { routerId: "hash" } },
  "mesh/communities": {
    nodes: DUAL,
    pools: POOL,
    configuration: {
      communities: [{ name: "community-bgp", value: "200:200" }],
      prefixAdvertisements: [
        { cidr: "192.168.0.0/16", communities: ["100:100", "community-bgp"] },
        { cidr: "fd00:96::/112", communities: ["65535:65281", "1:2:3"] },
      ],
    },
  },
  "mesh/communities-step2": {
    nodes: CLUSTER,
    pools: POOL,
    configuration: { prefixAdvertisements: [{ cidr: "192.168.0.0/16", communities: ["100:100"] }] },
    nodeConfiguration: { prefixAdvertisements: [{ cidr: "192.168.221.0/24", communities: ["300:300"] }] },
  },
  "mesh/restart-time": { nodes: CLUSTER, pools: POOL, configuration: { nodeMeshMaxRestartTime: "10s" } },
  "mesh/restart-time-pcr-disabled": {
    nodes: CLUSTER,
    pools: ipip("Always"),
    configuration: { nodeMeshMaxRestartTime: "10s", programClusterRoutes: "Disabled" },
  },
  "mesh/restart-time-pcr-enabled": {
    nodes: CLUSTER,
    pools: ipip("Always"),
    configuration: { nodeMeshMaxRestartTime: "10s", programClusterRoutes: "Enabled" },
  },
  "mesh/restart-time-pcr-ipip-only": {
    nodes: CLUSTER,
    pools: ipip("Always"),
    configuration: { nodeMeshMaxRestartTime: "10s", programClusterRoutes: "EnabledIPIPOnly" },
  },
  "mesh/route-reflector-mesh-enabled": {
    nodes: REFLECTORS,
    pools: POOL,
    peers: { rr: { nodeSelector: "!has(rr)", peerSelector: "has(rr)" } },
  },
  "mesh/static-routes": { nodes: DUAL, pools: POOL, configuration: services },
  "mesh/static-routes-step2": { nodes: DUAL, pools: POOL, configuration: services, inputs: ADDRESSES },
  "mesh/static-routes-exclude-node": {
    nodes: { ...DUAL, [NODE]: at(2, {}, { "node.kubernetes.io/exclude-from-external-load-balancers": "true" }) },
    pools: POOL,
    configuration: services,
  },
  "mesh/static-routes-exclude-node-step2": {
    nodes: DUAL,
    pools: POOL,
    configuration: { ...services, serviceLoadBalancerIPs: [{ cidr: "198.51.100.0/24" }] },
  },
  "mesh/static-routes-no-ipv4-address": {
    nodes: { ...DUAL, [NODE]: { bgp: { ipv6Address: "2001::103:2/64" } } },
    pools: POOL,
    configuration: services,
  },
  "mesh/password-step1": {
    nodes: CLUSTER,
    pools: POOL,
    configuration: { nodeMeshPassword: secret("a") },
    inputs: ALL_SECRETS,
  },
  "mesh/password-step2": { nodes: CLUSTER, pools: POOL, configuration: { nodeMeshPassword: secret("b") } },
  "mesh/password-step3": { nodes: CLUSTER, pools: POOL },
  "explicit_peering/global": {
    nodes: CLUSTER,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { peerIP: "10.192.0.3", asNumber: 64512 }, b: { peerIP: "10.192.0.4", asNumber: 64512 } },
  },
  "explicit_peering/global-external": { nodes: CLUSTER, configuration: NO_MESH, pools: POOL, peers: tor() },
  "explicit_peering/global-ipv6": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { peerIP: "2001::103:3", asNumber: 64567 } },
  },
  "explicit_peering/specific_node": {
    nodes: CLUSTER,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "10.192.0.3", asNumber: 64512 } },
  },
  "explicit_peering/selectors": {
    nodes: RACKS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { nodeSelector: "rack == 'a'", peerSelector: "has(tor)" } },
  },
  "explicit_peering/selectors-step2": {
    nodes: RACKS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { nodeSelector: "rack == 'b'", peerSelector: "has(tor)" } },
  },
  "explicit_peering/route_reflector": {
    nodes: REFLECTOR,
    configuration: NO_MESH,
    pools: POOL,
    peers: { rr: { nodeSelector: "all()", peerSelector: "has(rr)" } },
  },
  "explicit_peering/route_reflector_v6_by_ip": {
    nodes: REFLECTOR,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "2001::103:3", asNumber: 64512 } },
  },
  "explicit_peering/keepnexthop": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ node: NODE, keepOriginalNextHop: true }),
  },
  "explicit_peering/keepnexthop-global": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ keepOriginalNextHop: true }),
  },
  "explicit_peering/local-as": {
    nodes: CLUSTER,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "10.225.0.1", asNumber: 65100, localASNumber: 65200 } },
  },
  "explicit_peering/local-as-global": {
    nodes: CLUSTER,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { peerIP: "10.225.0.1", asNumber: 65100, localASNumber: 65200 } },
  },
  "explicit_peering/local-as-ipv6": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "2001::999", asNumber: 65100, localASNumber: 65200 } },
  },
  "explicit_peering/local-as-global-ipv6": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { peerIP: "2001::999", asNumber: 65100, localASNumber: 65200 } },
  },
  "explicit_peering/local_bgp_peer": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    filters: { f: RULES },
    peers: { lw: { localWorkloadSelector: "app == 'router'", asNumber: 65401, filters: ["f"] } },
    inputs: {
      workloads: [{ peerName: "lw", addresses: [parseAddress("192.168.221.70"), parseAddress("fd00:96::5")] }],
    },
  },
  ...both("single_filter", { "test-filter": RULES }),
  ...both("multi_filter", { "test-filter-1": RULES, "test-filter-2": only("importV4", "exportV6") }),
  ...both("import_only", { "test-filter": only("importV4", "importV6") }),
  ...both("export_only", { "test-filter": only("exportV4", "exportV6") }),
  ...both("v4_only", { "test-filter": only("importV4", "exportV4") }),
  ...both("v6_only", { "test-filter": only("importV6", "exportV6") }),
  "bgpfilter/node_mesh": { nodes: DUAL, pools: POOL, filters: { "test-filter": RULES } },
  "bgpfilter/node_mesh_priority1": { nodes: DUAL, pools: POOL, configuration: { ipv4NormalRoutePriority: 500 } },
  "bgpfilter/node_mesh_priority2": { nodes: DUAL, pools: POOL, configuration: { ipv6NormalRoutePriority: 600 } },
  "bgpfilter/node_mesh_priority3": {
    nodes: DUAL,
    pools: POOL,
    configuration: { ipv4NormalRoutePriority: 1, ipv6NormalRoutePriority: 2147483646 },
  },
  "bgpfilter/match_operators": filtered({
    f: {
      importV4: ["Equal", "NotEqual", "In", "NotIn"].map((matchOperator) => ({
        action: "Accept",
        matchOperator,
        cidr: "44.4.0.0/16",
      })),
    },
  }),
  "bgpfilter/match_source": filtered({ f: { exportV4: [{ action: "Accept", source: "RemotePeers" }] } }),
  "bgpfilter/match_interface": filtered({
    f: {
      exportV4: [
        { action: "Reject", interface: "*.calico" },
        { action: "Reject", interface: "eth0", source: "RemotePeers" },
      ],
    },
  }),
  "bgpfilter/filter_names": filtered({
    "with.dots-and-dashes": RULES,
    ["a".repeat(45)]: RULES,
    ["b".repeat(46)]: RULES,
  }),
  "bgpfilter/communities_and_operations": filtered({
    f: {
      importV4: [
        {
          action: "Accept",
          communities: { values: ["65000:100"] },
          operations: [{ addCommunity: { value: "65000:200" } }, { prependASPath: { prefix: [65001, 65002] } }],
        },
      ],
      exportV4: [{ action: "Accept", operations: [{ setPriority: { value: 512 } }] }],
    },
  }),
  "bgpfilter/peer_type": filtered({
    f: {
      importV4: [
        { action: "Accept", peerType: "eBGP" },
        { action: "Reject", peerType: "iBGP" },
      ],
    },
  }),
  "bgpfilter/as_path_and_priority": filtered({
    f: { importV4: [{ action: "Reject", asPathPrefix: [65001, 65002], priority: 512 }] },
  }),
  "bgpfilter/large_community": filtered({
    f: {
      exportV4: [
        {
          action: "Accept",
          communities: { values: ["65000:1:2"] },
          operations: [{ addCommunity: { value: "65000:3:4" } }],
        },
      ],
    },
  }),
  "bgpfilter/kubevirt_live_migration": filtered({
    f: {
      exportV4: [
        { action: "Accept", priority: 512, matchOperator: "In", cidr: "192.168.0.0/16", prefixLength: { min: 32 } },
      ],
    },
  }),
  "bgpfilter/filter_deletion-step1": { ...filtered({ "test-filter-1": RULES, "test-filter-2": RULES }) },
  "bgpfilter/filter_deletion-step2": {
    ...filtered({ "test-filter-1": RULES }),
    peers: tor({ filters: ["test-filter-1", "test-filter-2"] }),
  },
  "cluster_routes/default": { nodes: CLUSTER, pools: [...POOL, { cidr: "10.50.0.0/16", ipipMode: "Always" }] },
  "cluster_routes/enabled": {
    nodes: CLUSTER,
    pools: [...POOL, { cidr: "10.50.0.0/16", ipipMode: "Always" }],
    configuration: { programClusterRoutes: "Enabled" },
  },
  "cluster_routes/ipip-only": {
    nodes: CLUSTER,
    pools: [...POOL, { cidr: "10.50.0.0/16", ipipMode: "Always" }],
    configuration: { programClusterRoutes: "EnabledIPIPOnly" },
  },
  "cluster_routes/noencap-only": {
    nodes: CLUSTER,
    pools: [...POOL, { cidr: "10.50.0.0/16", ipipMode: "Always" }],
    configuration: { programClusterRoutes: "EnabledNoEncapOnly" },
  },
  felix_cluster_routing: {
    nodes: DUAL,
    pools: [...POOL, { cidr: "2002::/64" }],
    configuration: { programClusterRoutes: "Disabled" },
  },
  ignored_interfaces: { nodes: CLUSTER, pools: POOL, configuration: { ignoredInterfaces: ["iface-1", "iface-2*"] } },
  "reachable_by/global_peers": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: {
      a: { peerIP: "10.225.0.1", asNumber: 65100, reachableBy: "10.192.0.254" },
      b: { peerIP: "2001::999", asNumber: 65100, reachableBy: "2001::103:254" },
    },
  },
  "reachable_by/route_reflectors": {
    nodes: REFLECTORS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "10.192.0.3", asNumber: 64512, reachableBy: "10.192.0.254" } },
  },
  "next_hop_mode/global_peers": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: {
      a: { peerIP: "10.225.0.1", asNumber: 65100, nextHopMode: "Self" },
      b: { peerIP: "10.225.0.2", asNumber: 65100, nextHopMode: "Keep" },
      c: { peerIP: "10.225.0.3", asNumber: 65100, nextHopMode: "Auto" },
    },
  },
  "next_hop_mode/route_reflectors": {
    nodes: REFLECTOR,
    configuration: NO_MESH,
    pools: POOL,
    peers: { rr: { nodeSelector: "!has(rr)", peerSelector: "has(rr)", nextHopMode: "Self" } },
  },
  "reverse_peering/auto": {
    nodes: RACKS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { nodeSelector: "rack == 'b'", peerSelector: "rack == 'a'" } },
  },
  "reverse_peering/manual": {
    nodes: RACKS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { nodeSelector: "rack == 'b'", peerSelector: "rack == 'a'", reversePeering: "Manual" } },
  },
  "ttl_security/explicit_node": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ node: NODE, ttlSecurity: 1 }),
  },
  "ttl_security/peer_selector": {
    nodes: RACKS,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { nodeSelector: "rack == 'a'", peerSelector: "has(tor)", ttlSecurity: 2 } },
  },
  "ttl_security/global": { nodes: DUAL, configuration: NO_MESH, pools: POOL, peers: tor({ ttlSecurity: 255 }) },
  "sourceaddr_gracefulrestart-step1": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ sourceAddress: "None", maxRestartTime: "10s" }),
  },
  "sourceaddr_gracefulrestart-step2": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ sourceAddress: "UseNodeIP", maxRestartTime: "12s", keepaliveTime: "15s" }),
  },
  "sourceaddr_gracefulrestart-step3": { nodes: DUAL, configuration: NO_MESH, pools: POOL, peers: tor() },
  "password-step1": { nodes: DUAL, configuration: NO_MESH, pools: POOL, peers: tor({ password: secret("a") }) },
  "password-step2": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ password: secret("a") }),
    inputs: ALL_SECRETS,
  },
  "password-step3": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: { a: { node: NODE, peerIP: "10.225.0.1", asNumber: 65100, password: secret("b") }, ...tor() },
    inputs: ALL_SECRETS,
  },
  // Another secret for the same peer; then a key that the secret does not have; then no password.
  "password-step4": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: tor({ password: secret("b") }),
    inputs: ALL_SECRETS,
  },
  "password-step5": {
    nodes: DUAL,
    configuration: NO_MESH,
    pools: POOL,
    peers: {
      a: { node: NODE, peerIP: "10.225.0.1", asNumber: 65100, password: secret("a") },
      ...tor({ password: secret("b") }),
    },
    inputs: { hasSecret: ({ key }) => key === "a" },
  },
  "password-step6": { nodes: DUAL, configuration: NO_MESH, pools: POOL, peers: tor(), inputs: ALL_SECRETS },
  "password-deadlock": {
    nodes: CLUSTER,
    configuration: NO_MESH,
    pools: POOL,
    peers: Object.fromEntries(
      Array.from({ length: 99 }, (_, i) => [
        `p${String(i).padStart(2, "0")}`,
        { peerIP: `10.224.0.${i + 1}`, asNumber: 64512, password: secret("a") },
      ]),
    ),
    inputs: ALL_SECRETS,
  },
  wireguard: {
    nodes: {
      [NODE]: { ...v4(2), wireguard: { interfaceIPv4Address: "192.168.99.1" } },
      "kube-node-1": { ...v4(3), wireguard: { interfaceIPv4Address: "192.168.99.2" } },
      "kube-node-2": v4(4),
    },
    pools: POOL,
  },
  bind_mode: { nodes: DUAL, pools: POOL, configuration: { bindMode: "NodeIP", listenPort: 1790 } },
  "log_level/debug": { nodes: CLUSTER, pools: POOL, configuration: { logSeverityScreen: "Debug" } },
  "log_level/none": { nodes: CLUSTER, pools: POOL, configuration: { logSeverityScreen: "Fatal" } },
};

export function planScenario(scenario: Scenario): BgpPlan {
  const collector = new BgpCollector();
  const put = (kind: KindName, name: string, spec: object, labels?: Labels) =>
    collector.setResource(name, { apiVersion: API_VERSION, kind, metadata: { name, labels }, spec }, kind);
  for (const [name, { labels, ...spec }] of Object.entries(scenario.nodes ?? {})) put("Node", name, spec, labels);
  if (scenario.configuration !== undefined) put("BGPConfiguration", "default", scenario.configuration);
  if (scenario.nodeConfiguration !== undefined) put("BGPConfiguration", `node.${NODE}`, scenario.nodeConfiguration);
  for (const [i, pool] of (scenario.pools ?? []).entries()) put("IPPool", `pool${i}`, pool);
  for (const [name, peer] of Object.entries(scenario.peers ?? {})) put("BGPPeer", name, peer);
  for (const [name, filter] of Object.entries(scenario.filters ?? {})) put("BGPFilter", name, filter);
  for (const cidr of BLOCKS) collector.setBlock(NODE, cidr, { state: "confirmed", deleted: false });
  return plan(collector.stateFor(NODE), NODE, scenario.inputs);
}
