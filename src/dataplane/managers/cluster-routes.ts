// Keeps the routes to workloads on other nodes: through a tunnel, or directly to a node in the same subnet. Blocks of this node
// get a blackhole route for their unused addresses.
import { ROUTE_TYPE, type RouteUpdate } from "../../calc/index.ts";
import {
  addressBits,
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpAddress,
  type IpVersion,
  tryParseAddress,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import type { RouteTable } from "../routes/route-table.ts";
import type { RouteClass, DesiredRoute } from "../routes/desired-routes.ts";
import type { EndpointRegistry } from "./endpoint-registry.ts";

export type ClusterRouteKind = "vxlan" | "ipip" | "no-encap";

export interface ClusterRoutesOptions {
  readonly kind: ClusterRouteKind;
  readonly version: IpVersion;
  readonly hostname: string;
  readonly table: Pick<RouteTable, "set" | "remove">;
  readonly registry: EndpointRegistry;
  /** Undefined without a tunnel. */
  readonly tunnel?: { readonly interfaceName: string; readonly mtu: number; readonly protocol: number };
  /** The route protocol that no other program uses. */
  readonly exclusiveProtocol: number;
}

const CLASSES: Readonly<Record<ClusterRouteKind, { direct: RouteClass; tunnel: RouteClass; blackhole: RouteClass }>> = {
  vxlan: { direct: "vxlanSameSubnet", tunnel: "vxlanTunnel", blackhole: "blackholeVxlan" },
  ipip: { direct: "ipipSameSubnet", tunnel: "ipipTunnel", blackhole: "blackholeIpip" },
  "no-encap": { direct: "noEncap", tunnel: "noEncap", blackhole: "blackholeNoEncap" },
};

interface Placed {
  readonly routeClass: RouteClass;
  readonly route: DesiredRoute;
}

export class ClusterRoutes implements Manager {
  readonly name: string;
  readonly #options: ClusterRoutesOptions;
  readonly #updates = new Map<Cidr, RouteUpdate>();
  /** The VXLAN tunnel address of each node. */
  readonly #tunnelEnds = new Map<string, IpAddress>();
  readonly #nodeAddresses = new Map<string, IpAddress>();
  readonly #placed = new Map<Cidr, Placed>();
  readonly #dirty = new Set<Cidr>();
  #parent: string | undefined;

  constructor(options: ClusterRoutesOptions) {
    this.#options = options;
    this.name = `${options.kind} routes IPv${options.version}`;
  }

  /** The interface through which packets to other nodes are sent. */
  get parentInterface(): string | undefined {
    return this.#parent;
  }
  get nodeAddress(): IpAddress | undefined {
    return this.#nodeAddresses.get(this.#options.hostname);
  }

  onUpdate(message: ManagerMessage): void {
    const { version } = this.#options;
    switch (message.type) {
      case "routeUpdate":
        if (message.dst.includes(":") !== (version === 6)) return;
        if (message.poolType === this.#options.kind) this.#updates.set(message.dst, message);
        else this.#updates.delete(message.dst);
        this.#dirty.add(message.dst);
        return;
      case "routeRemove":
        if (this.#updates.delete(message.dst)) this.#dirty.add(message.dst);
        return;
      case "vtepUpdate": {
        if (this.#options.kind !== "vxlan") return;
        const [end, parent] =
          version === 4 ? [message.ipv4Addr, message.parentDeviceIp] : [message.ipv6Addr, message.parentDeviceIpv6];
        this.#setNode(message.node, tryParseAddress(end), tryParseAddress(parent));
        return;
      }
      case "vtepRemove":
        if (this.#options.kind === "vxlan") this.#setNode(message.node, undefined, undefined);
        return;
      case "hostMetadataUpdate": {
        if (this.#options.kind === "vxlan") return;
        const text = version === 4 ? message.ipv4Addr : message.ipv6Addr;
        this.#setNode(message.hostname, undefined, text === "" ? undefined : tryParseNetwork(text)?.address);
        return;
      }
      case "hostMetadataRemove":
        if (this.#options.kind !== "vxlan") this.#setNode(message.hostname, undefined, undefined);
        return;
      default:
        return;
    }
  }

  apply(): void {
    this.#findParent();
    for (const destination of this.#dirty) this.#place(destination);
    this.#dirty.clear();
  }

  #setNode(node: string, end: IpAddress | undefined, address: IpAddress | undefined): void {
    if (end === undefined) this.#tunnelEnds.delete(node);
    else this.#tunnelEnds.set(node, end);
    if (address === undefined) this.#nodeAddresses.delete(node);
    else this.#nodeAddresses.set(node, address);
    for (const [destination, update] of this.#updates) if (update.dstNodeName === node) this.#dirty.add(destination);
  }

  #findParent(): void {
    const own = this.nodeAddress;
    let parent: string | undefined;
    if (own !== undefined)
      for (const [name, addresses] of this.#options.registry.addresses) if (addresses.has(own)) parent = name;
    if (parent === this.#parent) return;
    this.#parent = parent;
    for (const destination of this.#updates.keys()) this.#dirty.add(destination);
  }

  #place(destination: Cidr): void {
    const { table } = this.#options;
    const before = this.#placed.get(destination);
    const desired = this.#desired(destination);
    if (
      before !== undefined &&
      (before.routeClass !== desired?.routeClass || before.route.interfaceName !== desired.route.interfaceName)
    )
      table.remove(before.routeClass, before.route);
    if (desired === undefined) this.#placed.delete(destination);
    else {
      table.set(desired.routeClass, desired.route);
      this.#placed.set(destination, desired);
    }
  }

  #desired(destination: Cidr): Placed | undefined {
    const update = this.#updates.get(destination);
    if (update === undefined) return undefined;
    const { kind, hostname, exclusiveProtocol, version } = this.#options;
    const { types } = update;
    const isRemote =
      (types & ROUTE_TYPE.remoteWorkload) !== 0 || ((types & ROUTE_TYPE.remoteTunnel) !== 0 && update.borrowed);
    // A borrowed address has both types, local and remote: the block belongs to one node, the workload runs on another.
    // The node of the route is the one that the workload runs on.
    if (isRemote && update.dstNodeName !== hostname) return this.#direct(update) ?? this.#tunnelled(update);
    const isLocalBlock =
      (types & ROUTE_TYPE.localWorkload) !== 0 &&
      !update.localWorkload &&
      cidrLength(destination) < addressBits(version);
    if (!isLocalBlock) return undefined;
    // Without the blackhole, packets to unused addresses of this node's block would leave by the default route.
    const route = { destination, type: "blackhole", protocol: exclusiveProtocol } as const;
    return { routeClass: CLASSES[kind].blackhole, route };
  }

  #direct(update: RouteUpdate): Placed | undefined {
    const { kind, exclusiveProtocol } = this.#options;
    const node = update.dstNodeIp === "" ? this.#nodeAddresses.get(update.dstNodeName) : update.dstNodeIp;
    if ((!update.sameSubnet && kind !== "no-encap") || node === undefined || this.#parent === undefined)
      return undefined;
    return {
      routeClass: CLASSES[kind].direct,
      route: {
        destination: update.dst,
        interfaceName: this.#parent,
        gateway: node,
        onlink: true,
        protocol: exclusiveProtocol,
      },
    };
  }

  #tunnelled(update: RouteUpdate): Placed | undefined {
    const { kind, tunnel } = this.#options;
    if (tunnel === undefined) return undefined;
    const { interfaceName, mtu, protocol } = tunnel;
    const base = { destination: update.dst, interfaceName, protocol, mtu };
    const routeClass = CLASSES[kind].tunnel;
    if (kind === "vxlan") {
      const end = this.#tunnelEnds.get(update.dstNodeName);
      if (end === undefined) return undefined;
      // The tunnel address itself is on the link: it cannot be its own gateway.
      if (end === cidrAddress(update.dst) && cidrLength(update.dst) === addressBits(this.#options.version))
        return { routeClass, route: { ...base, scope: "link" } };
      return { routeClass, route: { ...base, gateway: end, onlink: true } };
    }
    const node = update.dstNodeIp === "" ? this.#nodeAddresses.get(update.dstNodeName) : update.dstNodeIp;
    return node === undefined ? undefined : { routeClass, route: { ...base, gateway: node, onlink: true } };
  }
}
