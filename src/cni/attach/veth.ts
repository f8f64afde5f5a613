// A pod's wire: a veth pair whose host end answers for a gateway that does not exist, so that every packet of the pod
// comes to the host and is routed there. The pod's address is a /32 or /128 of its own.
//
//   pod: default via 169.254.1.1 (or the host end's link-local) ── eth0 ═══ cali… ── host: 10.0.0.5/32 dev cali…
//
// Everything is made in a state that is closed by default, and in an order in which a kill leaves nothing that the
// next DEL does not take away: the pair exists in both namespaces at once or not at all.
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
/** What the host end's MAC makes of itself as a link-local address. */
const HOST_LINK_LOCAL = parseAddress("fe80::ecee:eeff:feee:eeee");

export interface WireRequest {
  readonly netns: NetworkNamespace;
  readonly ifName: string;
  readonly hostName: string;
  /** 0: the kernel's default. */
  readonly mtu: number;
  readonly queues: number;
  readonly deviceType: "veth" | "netkit";
  readonly hwAddr?: string;
  /** Whose it is, see `interface-owner.ts` in `model`. */
  readonly alias?: string;
}
export interface AddressRequest {
  readonly addresses: readonly IpNetwork[];
  /** What the pod reaches through its gateway. */
  readonly routes: readonly Cidr[];
  readonly allowIpForwarding: boolean;
  /** False where another host still has the address (a migration's target). */
  readonly hostRoutes: boolean;
}

/** The two ends of a wire that was made: down at first, without addresses. */
export class Wire implements Disposable {
  readonly mac: string;
  readonly #podLink: number;
  readonly #hostLink: number;

  private constructor(
    readonly host: Rtnetlink,
    readonly pod: Rtnetlink,
    readonly request: WireRequest,
    readonly log: Logger,
  ) {
    const link = pod.links.get(request.ifName);
    if (link?.mac === undefined || link.peer === undefined) throw new Error(`link ${request.ifName} vanished`);
    this.mac = link.mac;
    this.#podLink = link.index;
    this.#hostLink = link.peer;
  }

  /** Nothing when the host has a link of that name: it may still serve the pod's last container. */
  static async make(host: Rtnetlink, request: WireRequest, log: Logger): Promise<Wire | undefined> {
    using own = new DisposableStack();
    const pod = own.use(openRtnetlink(request.netns)); // first: no pair without a pod to put it in
    if (host.links.get(request.hostName) !== undefined) return undefined; // nor may it get our alias
    try {
      await createPair(host, request, log);
    } catch (error) {
      if (!hasErrno(error, "EEXIST")) throw error;
      // The name may be taken on either side; on the pod's it is somebody else's.
      if (host.links.get(request.hostName) !== undefined) return undefined;
      if (pod.links.get(request.ifName) === undefined) throw error;
      throw new Error(`the pod has an interface ${request.ifName} already (EEXIST); did another plugin make it?`, {
        cause: error,
      });
    }
    const wire = new Wire(host, pod, request, log);
    own.move();
    return wire;
  }

  /**
   * Makes the wire in place of a link that has its name on the host.
   * @param before index of that link; by name, a link that another program has made since could be deleted
   */
  static async replace(host: Rtnetlink, request: WireRequest, log: Logger, before: number | undefined): Promise<Wire> {
    if (before !== undefined) removeHostLink(host, before);
    const wire = await Wire.make(host, request, log);
    if (wire === undefined) throw new Error(`link ${request.hostName} came back; does another program make it?`);
    return wire;
  }

  /** Sets both ends for addresses of these families and brings them up. Nothing is routed there before there are addresses. */
  #bringUp(versions: readonly IpVersion[], allowIpForwarding: boolean): void {
    this.#setHostSysctls(versions);
    this.#setPodSysctls(versions, allowIpForwarding);
    // Only now: a link that comes up before its settings spends its first seconds with duplicate address detection.
    const ipv4 = { routeLocalnet: true, proxyArp: true, forwarding: true };
    this.host.links.set(this.#hostLink, { up: true, ...(versions.includes(4) ? { ipv4 } : {}) });
    this.pod.links.set(this.#podLink, { up: true });
  }

  /** Brings both ends up, and gives the pod its addresses and both sides their routes. */
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
        this.log.warn("Could not set a kernel setting", {
          interface: name,
          setting: `${family}/${kind}/${key}`,
          error,
        });
      }
    };
    tryWrite("ipv6", "conf", "accept_ra", 0);
    if (versions.includes(4)) tryWrite("ipv4", "neigh", "proxy_delay", 0); // the others come with the link going up
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
    const through = new Set(routes.filter((route) => ipVersion(route) === version)); // one may be listed twice
    const own: NewRoute[] = version === 4 ? [{ destination: hostCidr(gateway), link, scope: "link", protocol: 3 }] : [];
    for (const route of [...own, ...[...through].map((destination) => ({ destination, link, gateway }))])
      try {
        this.pod.routes.add(route);
      } catch (error) {
        if (!hasErrno(error, "EEXIST")) throw error;
        throw new Error(`the pod has a route to ${route.destination} already (EEXIST); by another interface?`, {
          cause: error,
        });
      }
  }

  /** The host end's link-local address. The kernel makes it when the carrier comes; we do not wait for that. */
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
      this.log.warn("Could not add the link-local address of the host side", { error });
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
      const [there] = routes
        .list({ version: ipVersion(address), table: 254 })
        .filter((r) => r.destination === destination);
      if (there?.link === link) return;
      const other = there?.link === undefined ? undefined : this.host.links.get(there.link)?.name;
      throw new Error(
        `the host has a route to ${destination} by ${other ?? there?.type ?? "another way"} already; is the address used outside Calico?`,
        { cause: error },
      );
    }
  }
}

async function createPair(host: Rtnetlink, request: WireRequest, log: Logger): Promise<void> {
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
      log.warn("The kernel has no netkit devices; using veth", { interface: hostName });
      kind = "veth";
    }
  try {
    await create(kind, true);
  } catch (error) {
    if (!hasErrno(error, "EADDRNOTAVAIL")) throw error;
    log.warn("The kernel refused the MAC address of the host side; using its own", { interface: hostName });
    await create(kind, false);
  }
}

/** The routes of a pod that names none. */
export const defaultRoutes = (): Cidr[] => [defaultDestination(4), defaultDestination(6)];

function removeHostLink(host: Rtnetlink, index: number): void {
  try {
    host.links.delete(index);
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}
