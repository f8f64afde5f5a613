// Calculates a route for each prefix of the cluster: its node, the kind of its pool, and whether it is local. Pools,
// blocks, nodes and workloads each add facts about a prefix. The route follows from the facts about the prefix and about
// all prefixes that enclose it.
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
} from "../../lib/ip/ip.ts";
import { type Block, type Node, type Pool, tunnelAddresses, type WorkloadEndpoint } from "../../model/index.ts";
import { nodeAddress } from "../cluster/node-address.ts";
import { ROUTE_TYPE, type RouteUpdate } from "../messages.ts";
import { type RefType, RouteTable } from "./route-table.ts";

export interface RouteListener {
  onRouteUpdate(route: RouteUpdate): void;
  onRouteRemove(dst: Cidr): void;
}

interface NodeFacts {
  readonly address: Readonly<Record<IpVersion, IpNetwork | undefined>>;
  /** All addresses of the node, as prefixes. */
  readonly hosts: readonly Cidr[];
  readonly tunnels: readonly { readonly cidr: Cidr; readonly type: RefType }[];
}

export class RouteResolver {
  readonly #host: string;
  readonly #listener: RouteListener;
  readonly #table = new RouteTable();
  readonly #nodes = new Map<string, NodeFacts>();
  /** By block: the node of each of its routes, by prefix. */
  readonly #blocks = new Map<Cidr, ReadonlyMap<Cidr, string>>();
  /** Sorted nodes of a prefix according to all blocks. While an address moves there may be two; the first one is used. */
  readonly #blockNodes = new Map<Cidr, string[]>();
  readonly #workloadNets = new Map<string, readonly Cidr[]>();

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
    for (const [dst, node] of routes) if (before.get(dst) !== node) this.#updateBlockNode(dst, node, before.get(dst));
    for (const [dst, node] of before) if (!routes.has(dst)) this.#updateBlockNode(dst, undefined, node);
    if (routes.size === 0) this.#blocks.delete(cidr);
    else this.#blocks.set(cidr, routes);
  }

  setWorkload(id: string, node: string, endpoint: WorkloadEndpoint | undefined): void {
    const before = this.#workloadNets.get(id) ?? [];
    const cidrs = endpoint === undefined ? [] : [...endpoint.ipv4Nets, ...endpoint.ipv6Nets];
    if (cidrs.length === before.length && cidrs.every((cidr, i) => cidr === before[i])) return;
    for (const cidr of cidrs) this.#table.addRef(cidr, node, "workload");
    for (const cidr of before) this.#table.removeRef(cidr, node, "workload");
    if (cidrs.length === 0) this.#workloadNets.delete(id);
    else this.#workloadNets.set(id, cidrs);
  }

  setNode(name: string, node: Node | undefined): void {
    const before = this.#nodes.get(name);
    const after = node === undefined ? undefined : nodeFacts(node);
    if (Bun.deepEquals(before, after, true)) return;
    for (const { cidr, type } of after?.tunnels ?? []) this.#table.addRef(cidr, name, type);
    for (const { cidr, type } of before?.tunnels ?? []) this.#table.removeRef(cidr, name, type);
    for (const cidr of before?.hosts ?? []) this.#table.removeHost(cidr, name);
    for (const cidr of after?.hosts ?? []) this.#table.addHost(cidr, name);
    if (after === undefined) this.#nodes.delete(name);
    else this.#nodes.set(name, after);
    // This host's own subnet determines for every route whether its node is in the same subnet.
    if (name === this.#host) this.#table.markAll();
    else this.#table.markNode(name);
  }

  flush(): void {
    for (const cidr of this.#table.takeDirty()) {
      const facts = this.#table.get(cidr);
      if (facts === undefined) continue;
      const route = facts.hasFacts && !isUnspecified(cidr) ? this.#routeTo(cidr) : undefined;
      if (route !== undefined && Bun.deepEquals(route, facts.sent, true)) continue;
      if (route !== undefined) this.#listener.onRouteUpdate(route);
      else if (facts.sent !== undefined) this.#listener.onRouteRemove(cidr);
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
    let ownerTypes = 0; // of all enclosing blocks: a borrowed address counts for the lender and the borrower
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
      sameSubnet: crossSubnet && this.#isSameSubnet(node, version),
      natOutgoing,
      localWorkload,
      borrowed,
      ...(tunnelType !== undefined && { tunnelType }),
    };
  }

  /** Returns true if the node's address lies in the subnet of this host's address. */
  #isSameSubnet(node: string, version: IpVersion): boolean {
    const own = this.#nodes.get(this.#host)?.address[version];
    const other = this.#nodes.get(node)?.address[version];
    if (own === undefined || other === undefined) return false;
    return cidrContains(maskCidr(own.address, own.length), other.address);
  }

  #updateBlockNode(dst: Cidr, node: string | undefined, before: string | undefined): void {
    const nodes = (this.#blockNodes.get(dst) ?? []).slice();
    if (before !== undefined) nodes.splice(nodes.indexOf(before), 1);
    if (node !== undefined) nodes.push(node);
    nodes.sort();
    if (nodes.length === 0) this.#blockNodes.delete(dst);
    else this.#blockNodes.set(dst, nodes);
    this.#table.setBlockNode(dst, nodes[0]);
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

/** Returns a route for the block, to the node of its affinity, and one for each address that another node borrowed. */
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

function nodeFacts(node: Node): NodeFacts | undefined {
  // If the node has a BGP address of either family, only its BGP addresses are used.
  const hasBgpAddress = node.networks[4] !== undefined || node.networks[6] !== undefined;
  const address = hasBgpAddress ? node.networks : { 4: nodeAddress(node, 4), 6: nodeAddress(node, 6) };
  if (address[4] === undefined && address[6] === undefined) return undefined;
  const listed = node.addresses.map(({ network }) => network.address);
  const own = [address[4]?.address, address[6]?.address, ...listed].filter((each) => each !== undefined);
  const hosts = [...new Set<IpAddress>(own)].filter((each) => each !== "0.0.0.0" && each !== "::").sort();
  const tunnels = tunnelAddresses(node).map(({ type, address: end }) => ({ cidr: hostCidr(end), type }));
  return { address, hosts: hosts.map(hostCidr), tunnels };
}

const isUnspecified = (cidr: Cidr): boolean => cidr === "0.0.0.0/32" || cidr === "::/128";
