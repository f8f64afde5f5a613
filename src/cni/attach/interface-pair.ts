// Creates the interface pair (veth or netkit) that connects a pod to the host. The host's interface responds to ARP requests
// for a gateway address that no interface has, so every packet of the pod reaches the host and is routed there. The pod's
// address is a /32 or /128.
//
//   pod: default via 169.254.1.1 (or the host interface's link-local address) ── eth0 ═══ cali… ── host: 10.0.0.5/32 dev cali…
//
// The interfaces are created down. One request creates the pair in both namespaces or not at all, so that DEL removes
// everything that a killed ADD has created.
import {
  defaultDestination,
  hasErrno,
  isGone,
  type LinkKind,
  type NetworkNamespace,
  type NewRoute,
  openRtnetlink,
  procSysctls,
  type Rtnetlink,
  sysctlsIn,
} from "../../kernel/index.ts";
import {
  type Cidr,
  hostCidr,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  parseAddress,
} from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";

const HOST_MAC = "ee:ee:ee:ee:ee:ee";
const GATEWAY_V4 = parseAddress("169.254.1.1");
/** The link-local address derived from HOST_MAC. */
const HOST_LINK_LOCAL = parseAddress("fe80::ecee:eeff:feee:eeee");

export interface InterfacePairRequest {
  readonly netns: NetworkNamespace;
  readonly ifName: string;
  readonly hostName: string;
  /** 0 selects the kernel's default. */
  readonly mtu: number;
  readonly queues: number;
  readonly deviceType: "veth" | "netkit";
  readonly hwAddr?: string;
  /** Names the owner, see `interface-owner.ts` in `model`. */
  readonly alias?: string;
}
export interface AddressRequest {
  readonly addresses: readonly IpNetwork[];
  /** Destinations that the pod reaches via its gateway. */
  readonly routes: readonly Cidr[];
  readonly allowIpForwarding: boolean;
  /** False for the target of a migration: another host still has the address. */
  readonly hostRoutes: boolean;
}

/** An interface pair that was created: down at first, and without addresses. */
export class InterfacePair implements Disposable {
  readonly mac: string;
  readonly #podLink: number;
  readonly #hostLink: number;

  private constructor(
    readonly host: Rtnetlink,
    readonly pod: Rtnetlink,
    readonly request: InterfacePairRequest,
    readonly log: Logger,
  ) {
    const link = pod.links.get(request.ifName);
    if (link?.mac === undefined || link.peer === undefined) throw new Error(`link ${request.ifName} vanished`);
    this.mac = link.mac;
    this.#podLink = link.index;
    this.#hostLink = link.peer;
  }

  /** Returns undefined if the host has a link of that name, which may belong to the pod's previous container. */
  static async create(host: Rtnetlink, request: InterfacePairRequest, log: Logger): Promise<InterfacePair | undefined> {
    using own = new DisposableStack();
    const pod = own.use(openRtnetlink(request.netns)); // fails here, before a pair is created, if the namespace is gone
    if (host.links.get(request.hostName) !== undefined) return undefined; // its alias must not be replaced
    try {
      await createPair(host, request, log);
    } catch (error) {
      if (!hasErrno(error, "EEXIST")) throw error;
      // One of the two names exists. If it is the pod's, another plugin has created that interface.
      if (host.links.get(request.hostName) !== undefined) return undefined;
      if (pod.links.get(request.ifName) === undefined) throw error;
      throw new Error(`the pod has an interface ${request.ifName} already (EEXIST); did another plugin create it?`, {
        cause: error,
      });
    }
    const pair = new InterfacePair(host, pod, request, log);
    own.move();
    return pair;
  }

  /**
   * Creates the pair after deleting a host link of the same name.
   * @param before index of that link. Deleting by name could delete a link that another program has created since.
   */
  static async replace(
    host: Rtnetlink,
    request: InterfacePairRequest,
    log: Logger,
    before: number | undefined,
  ): Promise<InterfacePair> {
    if (before !== undefined) removeHostLink(host, before);
    const pair = await InterfacePair.create(host, request, log);
    if (pair === undefined)
      throw new Error(`link ${request.hostName} exists again after it was deleted; does another program create it?`);
    return pair;
  }

  /** Sets the sysctls of both interfaces for these families and brings the interfaces up. */
  #bringUp(versions: readonly IpVersion[], allowIpForwarding: boolean): void {
    this.#setHostSysctls(versions);
    this.#setPodSysctls(versions, allowIpForwarding);
    // After the sysctls: otherwise the link would spend its first seconds with duplicate address detection.
    const ipv4 = { routeLocalnet: true, proxyArp: true, forwarding: true };
    this.host.links.set(this.#hostLink, { up: true, ...(versions.includes(4) ? { ipv4 } : {}) });
    this.pod.links.set(this.#podLink, { up: true });
  }

  /** Brings both interfaces up, and adds the pod's addresses and the routes of both sides. */
  async addAddresses(request: AddressRequest): Promise<void> {
    const { addresses } = request;
    const versions = ([4, 6] as const).filter((v) => addresses.some((a) => ipVersion(a.address) === v));
    this.#bringUp(versions, request.allowIpForwarding);
    if (versions.includes(4)) this.#routeThroughGateway(GATEWAY_V4, request.routes, 4);
    if (versions.includes(6)) this.#routeThroughGateway(await this.#hostLinkLocal(), request.routes, 6);
    for (const { address, length } of addresses)
      this.pod.addresses.replace({ link: this.#podLink, address, length, noDuplicateDetection: true });
    if (request.hostRoutes) for (const { address } of addresses) this.#addHostRoute(address);
  }

  [Symbol.dispose](): void {
    this.pod[Symbol.dispose]();
  }

  #setHostSysctls(versions: readonly IpVersion[]): void {
    const name = this.request.hostName;
    const write = (family: string, kind: string, key: string, value: number): void =>
      procSysctls.write(["net", family, kind, name, key], value);
    const tryWrite = (family: string, kind: string, key: string, value: number): void => {
      try {
        write(family, kind, key, value);
      } catch (error) {
        this.log.warn("could not set a sysctl", {
          interface: name,
          setting: `${family}/${kind}/${key}`,
          error,
        });
      }
    };
    tryWrite("ipv6", "conf", "accept_ra", 0);
    if (versions.includes(4)) tryWrite("ipv4", "neigh", "proxy_delay", 0); // the other IPv4 settings are part of the request that brings the link up
    if (versions.includes(6)) {
      write("ipv6", "conf", "accept_dad", 0);
      write("ipv6", "conf", "disable_ipv6", 0);
      write("ipv6", "conf", "proxy_ndp", 1);
      write("ipv6", "conf", "forwarding", 1);
    }
  }

  #setPodSysctls(versions: readonly IpVersion[], allowIpForwarding: boolean): void {
    const forwarding = allowIpForwarding ? 1 : 0;
    const sysctls = sysctlsIn(this.request.netns);
    if (versions.includes(6)) {
      sysctls.write(["net", "ipv6", "conf", this.request.ifName, "accept_dad"], 0);
      for (const scope of ["all", "default", "lo"]) sysctls.write(["net", "ipv6", "conf", scope, "disable_ipv6"], 0);
    }
    if (versions.includes(4)) sysctls.write(["net", "ipv4", "ip_forward"], forwarding);
    if (versions.includes(6)) sysctls.write(["net", "ipv6", "conf", "all", "forwarding"], forwarding);
  }

  #routeThroughGateway(gateway: IpAddress, routes: readonly Cidr[], version: IpVersion): void {
    const link = this.#podLink;
    const through = new Set(routes.filter((route) => ipVersion(route) === version)); // without duplicates
    const own: NewRoute[] = version === 4 ? [{ destination: hostCidr(gateway), link, scope: "link", protocol: 3 }] : [];
    for (const route of [...own, ...[...through].map((destination) => ({ destination, link, gateway }))])
      try {
        this.pod.routes.add(route);
      } catch (error) {
        if (!hasErrno(error, "EEXIST")) throw error;
        throw new Error(
          `the pod has a route to ${route.destination} already (EEXIST); by another interface of the pod?`,
          {
            cause: error,
          },
        );
      }
  }

  /**
   * Returns the link-local address of the host interface. The kernel adds it only when the link has a carrier; adding it here
   * avoids waiting for that.
   */
  async #hostLinkLocal(): Promise<IpAddress> {
    const link = this.#hostLink;
    const linkLocal = (): IpAddress | undefined =>
      this.host.addresses.list({ version: 6, link }).find((a) => a.address.startsWith("fe80:"))?.address;
    try {
      if (this.host.links.get(link)?.mac === HOST_MAC) {
        this.host.addresses.replace({
          link,
          address: HOST_LINK_LOCAL,
          length: 64,
          scope: "link",
          noDuplicateDetection: true,
        });
        return HOST_LINK_LOCAL;
      }
    } catch (error) {
      this.log.warn("could not add the link-local address of the host interface", { error });
    }
    for (let attempt = 0; attempt < 50; attempt++) {
      const found = linkLocal();
      if (found !== undefined) return found;
      await delay(10);
    }
    throw new Error(
      `link ${this.request.hostName} got no link-local IPv6 address; is IPv6 disabled on the host (net.ipv6.conf.all.disable_ipv6)?`,
    );
  }

  #addHostRoute(address: IpAddress): void {
    const link = this.#hostLink;
    const destination = hostCidr(address);
    const { routes } = this.host;
    try {
      routes.add({ destination, link, ...(ipVersion(address) === 4 ? { scope: "link" } : {}) });
    } catch (error) {
      if (!hasErrno(error, "EEXIST")) throw error;
      const [existing] = routes
        .list({ version: ipVersion(address), table: 254 })
        .filter((r) => r.destination === destination);
      if (existing?.link === link) return;
      const other = existing?.link === undefined ? undefined : this.host.links.get(existing.link)?.name;
      throw new Error(
        `the host has a route to ${destination} by ${other ?? existing?.type ?? "another path"} already; is the address used outside Calico?`,
        { cause: error },
      );
    }
  }
}

async function createPair(host: Rtnetlink, request: InterfacePairRequest, log: Logger): Promise<void> {
  const { hostName, ifName, netns, mtu, queues, hwAddr, alias } = request;
  const peer = {
    name: ifName,
    namespaceFd: netns.fd,
    ...(mtu > 0 ? { mtu } : {}),
    mac: hwAddr,
    queues,
  };
  const create = (kind: "veth" | "netkit", mac: boolean): Promise<void> => {
    const type: LinkKind = kind === "veth" ? { kind, peer } : { kind, peer };
    return host.createLinkOffThread({
      name: hostName,
      up: false,
      type,
      ...(mac ? { mac: HOST_MAC } : {}),
      alias,
      ...(mtu > 0 ? { mtu } : {}),
      queues,
    });
  };
  let kind = request.deviceType;
  if (kind === "netkit")
    try {
      return await create("netkit", true);
    } catch (error) {
      if (!hasErrno(error, "EOPNOTSUPP")) throw error;
      log.warn("the kernel does not support netkit; using veth", { interface: hostName });
      kind = "veth";
    }
  try {
    await create(kind, true);
  } catch (error) {
    if (!hasErrno(error, "EADDRNOTAVAIL")) throw error;
    log.warn("the kernel rejected the MAC address of the host interface; using a random one", { interface: hostName });
    await create(kind, false);
  }
}

/** The routes of a pod whose configuration has none. */
export const defaultRoutes = (): Cidr[] => [defaultDestination(4), defaultDestination(6)];

function removeHostLink(host: Rtnetlink, index: number): void {
  try {
    host.links.delete(index);
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
