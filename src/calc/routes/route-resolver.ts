// Where each prefix of the cluster lives: which node, behind which kind of pool, and what it is to us. Pools, blocks,
// nodes and workloads each add what they know about a prefix; the answer is read off the prefix and all that enclose it.
import {
  addressPlus,
  type Cidr,
  cidrAddress,
  cidrContains,
  hostCidr,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  maskCidr,
  tryParseNetwork,
} from "../../lib/ip.ts";
import type { Block, Pool, Resource, WorkloadEndpoint } from "../../model/index.ts";
import { ROUTE_TYPE, type RouteUpdate } from "../messages.ts";
import { addressOf, nodeAddress, type NodeSpec, specOf } from "../resources.ts";
import { type RefType, RouteTable } from "./route-table.ts";

export interface RouteListener {
  onRoute(route: RouteUpdate): void;
  onRouteGone(dst: Cidr): void;
}

interface NodeFacts {
  readonly address: Readonly<Record<IpVersion, IpNetwork | undefined>>;
  /** Every address the node bears, as prefixes. */
  readonly hosts: readonly Cidr[];
  readonly tunnels: readonly { readonly cidr: Cidr; readonly type: RefType }[];
}

export class RouteResolver {
  readonly #host: string;
  readonly #listener: RouteListener;
  readonly #table = new RouteTable();
  readonly #nodes = new Map<string, NodeFacts>();
  /** The routes each block gives, by prefix. */
  readonly #blocks = new Map<Cidr, ReadonlyMap<Cidr, string>>();
  /** What all blocks say about a prefix; two may, while addresses move. The least name counts. */
  readonly #blockClaims = new Map<Cidr, string[]>();
  readonly #workloads = new Map<string, readonly Cidr[]>();

  constructor(host: string, listener: RouteListener) {
    this.#host = host;
    this.#listener = listener;
  }

  setPool(cidr: Cidr, pool: Pool | undefined): void {
    this.#table.setPool(cidr, pool === undefined ? undefined : poolFacts(pool));
  }

  setBlock(cidr: Cidr, block: Block | undefined): void {
    const before = this.#blocks.get(cidr) ?? new Map<Cidr, string>();
    const routes = block === undefined ? new Map<Cidr, string>() : routesOfBlock(block);
    for (const [dst, node] of routes) if (before.get(dst) !== node) this.#claim(dst, node, before.get(dst));
    for (const [dst, node] of before) if (!routes.has(dst)) this.#claim(dst, undefined, node);
    if (routes.size === 0) this.#blocks.delete(cidr);
    else this.#blocks.set(cidr, routes);
  }

  setWorkload(id: string, node: string, endpoint: WorkloadEndpoint | undefined): void {
    const before = this.#workloads.get(id) ?? [];
    const cidrs = endpoint === undefined ? [] : [...endpoint.ipv4Nets, ...endpoint.ipv6Nets];
    if (cidrs.length === before.length && cidrs.every((cidr, i) => cidr === before[i])) return;
    for (const cidr of cidrs) this.#table.addRef(cidr, node, "workload");
    for (const cidr of before) this.#table.removeRef(cidr, node, "workload");
    if (cidrs.length === 0) this.#workloads.delete(id);
    else this.#workloads.set(id, cidrs);
  }

  setNode(name: string, resource: Resource | undefined): void {
    const before = this.#nodes.get(name);
    const after = resource === undefined ? undefined : nodeFacts(specOf<NodeSpec>(resource));
    if (Bun.deepEquals(before, after, true)) return;
    for (const { cidr, type } of after?.tunnels ?? []) this.#table.addRef(cidr, name, type);
    for (const { cidr, type } of before?.tunnels ?? []) this.#table.removeRef(cidr, name, type);
    for (const cidr of before?.hosts ?? []) this.#table.removeHost(cidr, name);
    for (const cidr of after?.hosts ?? []) this.#table.addHost(cidr, name);
    if (after === undefined) this.#nodes.delete(name);
    else this.#nodes.set(name, after);
    // Our own subnet decides for every route whether its node is a neighbour.
    if (name === this.#host) this.#table.markAll();
    else this.#table.markNode(name);
  }

  flush(): void {
    for (const cidr of this.#table.takeDirty()) {
      const facts = this.#table.get(cidr);
      if (facts === undefined) continue;
      const route = facts.isRoute && !isUnspecified(cidr) ? this.#routeTo(cidr) : undefined;
      if (route !== undefined && Bun.deepEquals(route, facts.sent, true)) continue;
      if (route !== undefined) this.#listener.onRoute(route);
      else if (facts.sent !== undefined) this.#listener.onRouteGone(cidr);
      this.#table.setSent(facts, route);
    }
  }

  #routeTo(cidr: Cidr): RouteUpdate {
    let types = 0;
    let poolType: RouteUpdate["poolType"] = "none";
    let natOutgoing = false;
    let crossSubnet = false;
    let node = "";
    let owner: string | undefined; // of the innermost block so far
    let ownerCidr: Cidr | undefined;
    let ownerTypes = 0; // of all blocks around: what is lent belongs to both sides
    let borrowed = false;
    let localWorkload = false;
    let tunnelType: RouteUpdate["tunnelType"];
    let isHost = false;
    for (const facts of this.#table.enclosing(cidr)) {
      if (facts.pool !== undefined) {
        if (facts.pool.type !== "none") poolType = facts.pool.type;
        natOutgoing ||= facts.pool.natOutgoing;
        crossSubnet ||= facts.pool.crossSubnet;
      }
      if (facts.blockNode !== undefined) {
        if (owner !== undefined && owner !== facts.blockNode) borrowed = true;
        node = owner = facts.blockNode;
        ownerCidr = facts.cidr;
        ownerTypes |= owner === this.#host ? ROUTE_TYPE.localWorkload : ROUTE_TYPE.remoteWorkload;
      }
      const [host] = facts.hosts;
      if (host !== undefined) {
        node = host;
        isHost = true;
        types |= host === this.#host ? ROUTE_TYPE.localHost : ROUTE_TYPE.remoteHost;
      }
      const [ref] = facts.refs;
      if (ref !== undefined) {
        node = ref.node;
        const isLocal = node === this.#host;
        if (owner !== undefined && owner !== node) borrowed = true;
        if (ref.type === "workload") {
          localWorkload = isLocal;
          types |= isLocal ? ROUTE_TYPE.localWorkload : ROUTE_TYPE.remoteWorkload;
        } else {
          types |= isLocal ? ROUTE_TYPE.localTunnel : ROUTE_TYPE.remoteTunnel;
          const has = (type: RefType) => facts.refs.some((other) => other.node === node && other.type === type);
          tunnelType = { ipip: has("ipip"), vxlan: has("vxlan"), wireguard: has("wireguard") };
        }
      }
    }
    if (!isHost && (tunnelType === undefined || ownerCidr === cidr)) types |= ownerTypes;
    const version = ipVersion(cidr);
    return {
      type: "routeUpdate",
      types,
      poolType,
      dst: cidr,
      dstNodeName: node,
      dstNodeIp: this.#nodes.get(node)?.address[version]?.address ?? "",
      sameSubnet: crossSubnet && this.#isNeighbour(node, version),
      natOutgoing,
      localWorkload,
      borrowed,
      ...(tunnelType !== undefined && { tunnelType }),
    };
  }

  /** Whether the node's address lies in the subnet of ours. */
  #isNeighbour(node: string, version: IpVersion): boolean {
    const ours = this.#nodes.get(this.#host)?.address[version];
    const theirs = this.#nodes.get(node)?.address[version];
    if (ours === undefined || theirs === undefined) return false;
    return cidrContains(maskCidr(ours.address, ours.length), theirs.address);
  }

  #claim(dst: Cidr, node: string | undefined, before: string | undefined): void {
    const claims = (this.#blockClaims.get(dst) ?? []).slice();
    if (before !== undefined) claims.splice(claims.indexOf(before), 1);
    if (node !== undefined) claims.push(node);
    claims.sort();
    if (claims.length === 0) this.#blockClaims.delete(dst);
    else this.#blockClaims.set(dst, claims);
    this.#table.setBlockNode(dst, claims[0]);
  }
}

function poolFacts(pool: Pool): { type: RouteUpdate["poolType"]; natOutgoing: boolean; crossSubnet: boolean } {
  const isForLoadBalancers = pool.allowedUses.length > 0 && pool.allowedUses.every((use) => use === "LoadBalancer");
  const type = isForLoadBalancers
    ? "none"
    : pool.vxlanMode !== ""
      ? "vxlan"
      : pool.ipipMode !== ""
        ? "ipip"
        : "no-encap";
  return {
    type,
    natOutgoing: pool.masquerade,
    crossSubnet: pool.vxlanMode === "cross-subnet" || pool.ipipMode === "cross-subnet",
  };
}

/** The block itself, at the node it belongs to, and each address that another node holds. */
function routesOfBlock(block: Block): Map<Cidr, string> {
  const routes = new Map<Cidr, string>();
  const host = block.affinity?.startsWith("host:") === true ? block.affinity.slice("host:".length) : undefined;
  const base = cidrAddress(block.cidr);
  for (const [ordinal, attribute] of block.allocations.entries()) {
    if (attribute === null) continue;
    const node = block.attributes[attribute]?.secondary?.["node"];
    if (node !== undefined && node !== "" && node !== host) routes.set(hostCidr(addressPlus(base, ordinal)), node);
  }
  if (host !== undefined && host !== "") routes.set(block.cidr, host);
  return routes;
}

function nodeFacts(spec: NodeSpec): NodeFacts | undefined {
  // A node with any BGP address is known by those alone.
  const named = (spec.bgp?.ipv4Address ?? "") !== "" || (spec.bgp?.ipv6Address ?? "") !== "";
  const known = named && spec.bgp !== undefined ? { bgp: spec.bgp } : spec;
  const address = { 4: nodeAddress(known, 4), 6: nodeAddress(known, 6) };
  if (address[4] === undefined && address[6] === undefined) return undefined;
  const listed = (spec.addresses ?? []).map((entry) => tryParseNetwork(entry.address)?.address);
  const own = [address[4]?.address, address[6]?.address, ...listed].filter((each) => each !== undefined);
  const hosts = [...new Set<IpAddress>(own)].filter((each) => each !== "0.0.0.0" && each !== "::").sort();
  const tunnels: { cidr: Cidr; type: RefType }[] = [];
  const tunnel = (type: RefType, text: string | undefined) => {
    const end = addressOf(text);
    if (end !== undefined) tunnels.push({ cidr: hostCidr(end), type });
  };
  tunnel("ipip", spec.bgp?.ipv4IPIPTunnelAddr);
  tunnel("vxlan", spec.ipv4VXLANTunnelAddr);
  tunnel("vxlan", spec.ipv6VXLANTunnelAddr);
  tunnel("wireguard", spec.wireguard?.interfaceIPv4Address);
  tunnel("wireguard", spec.wireguard?.interfaceIPv6Address);
  return { address, hosts: hosts.map(hostCidr), tunnels };
}

const isUnspecified = (cidr: Cidr): boolean => cidr === "0.0.0.0/32" || cidr === "::/128";
