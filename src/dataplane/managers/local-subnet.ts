// Replies to ARP and neighbour discovery for workloads and load balancers whose addresses are in the subnet of the nodes. Other
// hosts in this subnet send such requests, and exactly one node must reply: for a workload its node, for a load balancer the
// node that all nodes select in the same way.
import { createHash } from "node:crypto";
import type { NeighbourResponder, OpenNeighbourResponder, Rtnetlink } from "../../kernel/index.ts";
import { type Cidr, cidrAddress, cidrContains, type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { addressBits, cidrLength, maskCidr, tryParseAddress } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Manager, ManagerMessage } from "../loop/manager.ts";

export interface LocalSubnetDeps {
  readonly hostname: string;
  readonly versions: readonly IpVersion[];
  readonly isWorkload: (interfaceName: string) => boolean;
  /** True for a virtual machine that migrates to this node and still runs on another node. */
  readonly isExpected: (interfaceName: string) => boolean;
  readonly network: LocalNetwork;
  /** Interval between announcements of all addresses; 0: never. */
  readonly refreshMs: number;
  readonly logger: Logger;
  readonly now?: () => number;
}

export interface LocalNetwork {
  /** Returns the subnets of an interface, of both families. */
  readonly subnetsOf: (interfaceName: string) => readonly Cidr[];
  /** Returns undefined if the interface has no MAC address. */
  readonly open: (version: IpVersion, interfaceName: string) => NeighbourResponder | undefined;
}

interface Workload {
  readonly interfaceName: string;
  readonly addresses: readonly IpAddress[];
  readonly isTarget: boolean;
}

const RETRY_MS = 1000;

export class LocalSubnetNeighbours implements Manager, Disposable {
  readonly name = "local subnet neighbours";
  readonly #deps: LocalSubnetDeps;
  readonly #interfaces = new Set<string>();
  readonly #workloads = new Map<string, Workload>();
  readonly #balancers = new Map<string, readonly IpAddress[]>();
  readonly #nodes = new Map<string, ReadonlySet<IpVersion>>();
  readonly #pools = new Map<string, Cidr>();
  readonly #responders = new Map<string, NeighbourResponder>();
  readonly #now: () => number;
  #isStale = true;
  #announceAt: number;

  constructor(deps: LocalSubnetDeps) {
    this.#deps = deps;
    this.#now = deps.now ?? (() => performance.now());
    this.#announceAt = this.#now() + deps.refreshMs;
  }

  onUpdate(message: ManagerMessage): void {
    this.#isStale = this.#store(message) || this.#isStale;
  }

  /** @returns true if the addresses may have changed */
  #store(message: ManagerMessage): boolean {
    switch (message.type) {
      case "interfaceState":
      case "interfaceAddresses": {
        const { name } = message;
        if (this.#deps.isWorkload(name) || name === "lo") return false;
        const isGone = message.type === "interfaceState" ? message.state !== "up" : message.addresses === undefined;
        if (isGone) this.#interfaces.delete(name);
        else this.#interfaces.add(name);
        return true;
      }
      case "workloadEndpointUpdate": {
        const { endpoint } = message;
        const isHere = endpoint.state === "active" && endpoint.liveMigrationRole !== "source";
        const addresses = isHere ? [...endpoint.ipv4Nets, ...endpoint.ipv6Nets].map(cidrAddress) : [];
        const isTarget = endpoint.liveMigrationRole === "target";
        this.#workloads.set(JSON.stringify(message.id), { interfaceName: endpoint.name, addresses, isTarget });
        return true;
      }
      case "workloadEndpointRemove":
        return this.#workloads.delete(JSON.stringify(message.id));
      case "serviceUpdate": {
        const key = `${message.namespace}/${message.name}`;
        if (message.serviceType !== "LoadBalancer") return this.#balancers.delete(key);
        const given = [...message.loadBalancerIngressIps, message.loadBalancerIp];
        this.#balancers.set(
          key,
          given.flatMap((text) => tryParseAddress(text) ?? []),
        );
        return true;
      }
      case "serviceRemove":
        return this.#balancers.delete(`${message.namespace}/${message.name}`);
      case "hostMetadataUpdate": {
        const versions: IpVersion[] = [];
        if (message.ipv4Addr !== "") versions.push(4);
        if (message.ipv6Addr !== "") versions.push(6);
        this.#nodes.set(message.hostname, new Set(versions));
        return true;
      }
      case "hostMetadataRemove":
        return this.#nodes.delete(message.hostname);
      case "poolUpdate": {
        const isPlain = [message.ipipMode, message.vxlanMode].every((mode) => mode === "" || mode === "Never");
        if (!isPlain) return this.#pools.delete(message.id);
        this.#pools.set(message.id, message.cidr);
        return true;
      }
      case "poolRemove":
        return this.#pools.delete(message.id);
      default:
        return false;
    }
  }

  apply(): ApplyOutcome {
    // The arrival of a migrating machine causes no message.
    const isWaiting = [...this.#workloads.values()].some(({ isTarget }) => isTarget);
    let hasFailed = false;
    if (this.#isStale || isWaiting) {
      this.#isStale = false;
      hasFailed = !this.#updateResponders();
      this.#isStale = hasFailed;
    }
    const { refreshMs } = this.#deps;
    const waits = hasFailed ? [RETRY_MS] : [];
    if (refreshMs > 0 && this.#responders.size > 0) {
      if (this.#now() >= this.#announceAt) {
        for (const responder of this.#responders.values()) responder.announceAll();
        this.#announceAt = this.#now() + refreshMs;
      }
      waits.push(this.#announceAt - this.#now());
    }
    return waits.length === 0 ? {} : { againInMs: Math.min(...waits) };
  }

  [Symbol.dispose](): void {
    for (const responder of this.#responders.values()) responder[Symbol.dispose]();
    this.#responders.clear();
  }

  /** @returns false if a responder could not be opened */
  #updateResponders(): boolean {
    const desired = this.#desired();
    let isComplete = true;
    for (const [key, responder] of this.#responders)
      if (!desired.has(key)) {
        responder[Symbol.dispose]();
        this.#responders.delete(key);
      }
    for (const [key, { version, interfaceName, addresses }] of desired)
      try {
        let responder = this.#responders.get(key);
        if (responder === undefined) {
          responder = this.#deps.network.open(version, interfaceName);
          if (responder === undefined) continue;
          this.#responders.set(key, responder);
        }
        responder.setAddresses(addresses);
      } catch (error) {
        isComplete = false;
        const fields = { interface: interfaceName, ipVersion: version, error: describeError(error) };
        this.#deps.logger.warn("replying for addresses of the local subnet failed; retrying", fields);
      }
    return isComplete;
  }

  #desired(): Map<string, { version: IpVersion; interfaceName: string; addresses: Set<IpAddress> }> {
    const desired = new Map<string, { version: IpVersion; interfaceName: string; addresses: Set<IpAddress> }>();
    const subnets = [...this.#interfaces].flatMap((interfaceName) =>
      this.#deps.network
        .subnetsOf(interfaceName)
        .filter((subnet) => cidrLength(subnet) < addressBits(ipVersion(subnet)))
        .map((subnet) => ({ interfaceName, subnet })),
    );
    for (const address of this.#candidates()) {
      const version = ipVersion(address);
      if (!this.#deps.versions.includes(version)) continue;
      if (![...this.#pools.values()].some((pool) => isInside(pool, address))) continue;
      for (const { interfaceName, subnet } of subnets) {
        if (!isInside(subnet, address)) continue;
        const key = `${interfaceName} ${version}`;
        const entry = desired.get(key) ?? { version, interfaceName, addresses: new Set() };
        desired.set(key, entry);
        entry.addresses.add(address);
      }
    }
    return desired;
  }

  *#candidates(): Iterable<IpAddress> {
    for (const { interfaceName, addresses, isTarget } of this.#workloads.values())
      if (!isTarget || !this.#deps.isExpected(interfaceName)) yield* addresses;
    for (const addresses of this.#balancers.values())
      for (const address of addresses) {
        const nodes = [...this.#nodes].filter(([, versions]) => versions.has(ipVersion(address))).map(([node]) => node);
        if (selectNode(address, nodes) === this.#deps.hostname) yield address;
      }
  }
}

/** Reads the interfaces of the host from the kernel. */
export function networkOf(
  { links, addresses }: Pick<Rtnetlink, "links" | "addresses">,
  open: OpenNeighbourResponder,
): LocalNetwork {
  return {
    subnetsOf: (name) => {
      const link = links.get(name)?.index;
      return link === undefined ? [] : addresses.list({ link }).map((each) => maskCidr(each.address, each.length));
    },
    open: (version, name) => {
      const link = links.get(name);
      return link?.mac === undefined ? undefined : open(version, { index: link.index, name, mac: link.mac });
    },
  };
}

const isInside = (outer: Cidr, address: IpAddress): boolean =>
  ipVersion(outer) === ipVersion(address) && cidrContains(outer, address);

/** Selects a node by rendezvous hashing: all nodes select the same one, and a new or removed node affects only its own share. */
export function selectNode(address: IpAddress, nodes: readonly string[]): string | undefined {
  let best: { readonly node: string; readonly rank: string } | undefined;
  for (const node of nodes) {
    const rank = createHash("sha1").update(`${node}\0${address}`).digest("hex");
    if (best === undefined || rank > best.rank) best = { node, rank };
  }
  return best?.node;
}
