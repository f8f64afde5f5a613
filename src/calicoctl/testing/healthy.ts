// Defines the smallest cluster and host without findings, and functions to build variations of them.
import type { BirdSession } from "../../bgp/index.ts";
import { parseNetwork, tryParseAddress } from "../../lib/ip/ip.ts";
import { API_VERSION, type KindName, type Resource } from "../../model/index.ts";
import type { HostFacts, HostLink } from "../doctor/facts.ts";

export const resource = (
  kind: KindName,
  name: string,
  spec: object,
  labels: Record<string, string> = {},
  more: object = {},
) => ({ apiVersion: API_VERSION, kind, metadata: { name, labels }, spec, ...more }) as Resource;
export const node = (
  name: string,
  address: string,
  bgp: object = {},
  labels: Record<string, string> = {},
  spec: object = {},
) => resource("Node", name, { bgp: { ipv4Address: address, ...bgp }, ...spec }, labels);
export const pool = (name: string, cidr: string, spec: object = {}) => resource("IPPool", name, { cidr, ...spec });
export const peer = (name: string, spec: object) => resource("BGPPeer", name, spec);
export const PODS = pool("pods", "10.65.0.0/16");
export const THREE = [node("n1", "10.0.0.1/24"), node("n2", "10.0.0.2/24"), node("n3", "10.0.0.3/24")];

export const link = (name: string, ...networks: string[]): HostLink => ({
  name,
  mtu: 1500,
  isUp: true,
  hasCarrier: true,
  networks: networks.map(parseNetwork),
});
export const healthy: HostFacts = {
  node: "n1",
  links: [link("lo", "127.0.0.1/8"), link("eth0", "10.0.0.1/24")],
  sysctl: (path) =>
    ({ "net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/conf/all/rp_filter": "0" })[path],
  hasModule: () => true,
  routesToPodGateway: true,
  blockRoutes: new Map(),
  pathMtu: new Map(),
  iptables: { legacy: undefined, nft: undefined },
  hasCalicoNftTable: undefined,
  guard: { state: "normal", policyFor: [4] },
  staleConnections: [],
  filters: [],
  neighbourTable: { 4: undefined, 6: undefined },
  birds: { 4: undefined, 6: undefined },
  sessionEvidence: () => ({}),
  planProblems: [],
  rejected: [],
  parts: [],
};
export const session = (neighbor: string, over: Partial<BirdSession>): BirdSession => ({
  name: `Node_${neighbor.replaceAll(".", "_")}`,
  kind: "node",
  neighbor: tryParseAddress(neighbor),
  port: undefined,
  state: "start",
  since: "10:00:00",
  bgpState: "Active",
  info: "Active",
  lastError: undefined,
  neighborAs: 64512,
  localAs: 64512,
  imported: 0,
  exported: 0,
  updatesReceived: 0,
  isRecoveryPending: false,
  ...over,
});
