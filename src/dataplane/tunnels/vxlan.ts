// Keeps the VXLAN device of one family, and neighbour and forwarding entries for all other nodes. The device neither learns nor
// floods, because all tunnel addresses are known.
import { hasErrno, type Rtnetlink } from "../../kernel/index.ts";
import { type IpAddress, type IpVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Manager, ManagerMessage, Reconciler } from "../loop/manager.ts";
import type { ClusterRoutes } from "../managers/cluster-routes.ts";
import type { EndpointRegistry } from "../managers/endpoint-registry.ts";
import { TunnelDevice, type DesiredDevice } from "./tunnel-device.ts";

export const VXLAN_DEVICE: Readonly<Record<IpVersion, string>> = { 4: "vxlan.calico", 6: "vxlan-v6.calico" };

interface TunnelEnd {
  readonly mac: string;
  readonly address: IpAddress;
  readonly parent: IpAddress;
}

export interface VxlanOptions {
  readonly version: IpVersion;
  readonly hostname: string;
  readonly id: number;
  readonly port: number;
  readonly mtu: number;
  readonly kernel: Pick<Rtnetlink, "links" | "addresses" | "neighbours">;
  readonly registry: EndpointRegistry;
  readonly routes: ClusterRoutes;
  readonly logger: Logger;
  readonly onReady?: (device: string) => void;
}

/** Stores the tunnel addresses of all nodes. */
class VxlanEnds implements Manager {
  readonly name: string;
  readonly ends = new Map<string, TunnelEnd>();
  readonly #version: IpVersion;
  #revision = 0;

  constructor(version: IpVersion) {
    this.#version = version;
    this.name = `VXLAN ends IPv${version}`;
  }

  /** Increases with every change. */
  get revision(): number {
    return this.#revision;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "vtepRemove") {
      if (this.ends.delete(message.node)) this.#revision++;
      return;
    }
    if (message.type !== "vtepUpdate") return;
    const [mac, end, parent] =
      this.#version === 4
        ? [message.mac, message.ipv4Addr, message.parentDeviceIp]
        : [message.macV6, message.ipv6Addr, message.parentDeviceIpv6];
    const address = tryParseAddress(end);
    const parentAddress = tryParseAddress(parent);
    if (mac === "" || address === undefined || parentAddress === undefined) this.ends.delete(message.node);
    else this.ends.set(message.node, { mac, address, parent: parentAddress });
    this.#revision++;
  }
}

export function createVxlan(options: VxlanOptions): {
  readonly manager: VxlanEnds;
  readonly links: readonly Reconciler[];
} {
  const manager = new VxlanEnds(options.version);
  const device = VXLAN_DEVICE[options.version];
  const desired = (): DesiredDevice | undefined => {
    const own = manager.ends.get(options.hostname);
    const parentName = options.routes.parentInterface;
    const parent = parentName === undefined ? undefined : options.registry.interfaces.get(parentName);
    if (own === undefined || parent === undefined) return undefined;
    return {
      name: device,
      mac: own.mac,
      mtu: options.mtu,
      address: own.address,
      type: {
        kind: "vxlan",
        id: options.id,
        port: options.port,
        device: parent.index,
        local: own.parent,
        learning: false,
        udpChecksum: true,
      },
    };
  };
  const tunnel = new TunnelDevice({
    label: `VXLAN device IPv${options.version}`,
    setting: "VXLANEnabled, or vxlanMode of an IPPool",
    kernel: options.kernel,
    desired,
    logger: options.logger,
    onReady: options.onReady,
  });
  return { manager, links: [tunnel, new VxlanPeers(options, manager, device)] };
}

/** Keeps the neighbour and forwarding entries of the tunnel device. */
class VxlanPeers implements Reconciler {
  readonly name: string;
  readonly #options: VxlanOptions;
  readonly #ends: VxlanEnds;
  readonly #device: string;
  #written = "";
  #needsResync = true;

  constructor(options: VxlanOptions, ends: VxlanEnds, device: string) {
    this.#options = options;
    this.#ends = ends;
    this.#device = device;
    this.name = `VXLAN peers IPv${options.version}`;
  }

  queueResync(): void {
    this.#needsResync = true;
  }

  apply(): ApplyOutcome {
    const { links, neighbours } = this.#options.kernel;
    const { version, hostname } = this.#options;
    const link = links.get(this.#device);
    if (link === undefined || !link.isUp) {
      this.#needsResync = true;
      return {}; // applied again after the device was created
    }
    const state = `${link.index} ${this.#ends.revision}`;
    if (!this.#needsResync && state === this.#written) return {};
    const isOnlyLooking = state === this.#written;
    let surplus = 0;
    const desired = [...this.#ends.ends].filter(([node]) => node !== hostname).map(([, end]) => end);
    const macOf = new Map(desired.map(({ address, mac }) => [address, mac.toLowerCase()]));
    const parentOf = new Map(desired.map(({ mac, parent }) => [mac.toLowerCase(), parent]));
    for (const found of neighbours.list({ version, link: link.index })) {
      if (found.state !== "permanent" || found.mac === undefined) continue;
      if (macOf.get(found.address) === found.mac.toLowerCase()) macOf.delete(found.address);
      else if (!macOf.has(found.address)) {
        surplus++;
        ignoreGone(() => neighbours.delete({ link: link.index, address: found.address }));
      }
    }
    for (const found of neighbours.listFdb(link.index)) {
      if (!found.isPermanent) continue;
      const mac = found.mac.toLowerCase();
      if (found.destination !== undefined && parentOf.get(mac) === found.destination) parentOf.delete(mac);
      else if (!parentOf.has(mac)) {
        surplus++;
        ignoreGone(() => neighbours.deleteFdb(found));
      }
    }
    for (const [address, mac] of macOf) neighbours.set({ link: link.index, address, mac, state: "permanent" });
    for (const [mac, destination] of parentOf) neighbours.setFdb({ link: link.index, mac, destination });
    const missing = macOf.size + parentOf.size;
    if (isOnlyLooking && missing + surplus > 0)
      this.#options.logger.warn("another program changed neighbours of the tunnel; restored them", {
        device: this.#device,
        missing,
        surplus,
      });
    this.#written = state;
    this.#needsResync = false;
    return {};
  }
}

function ignoreGone(action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENODEV")) throw error;
  }
}
