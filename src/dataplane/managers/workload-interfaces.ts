// Configures the host side of workload interfaces: sysctls, routes to the workload, static ARP entries, and the address for
// BGP sessions with the workload.
import { type Addresses, hasErrno, setSysctl, type SysctlPath, type Sysctls } from "../../kernel/index.ts";
import { type Cidr, cidrAddress, hostCidr, type IpAddress, type IpVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { KernelSetting } from "../interfaces/kernel-settings.ts";
import type { ApplyOutcome, Manager, ManagerMessage } from "../loop/manager.ts";
import type { RouteTable } from "../routes/route-table.ts";
import type { StaleConnections } from "../routes/stale-connections.ts";
import type { DesiredRoute } from "../routes/desired-routes.ts";
import type { StaticNeighbours } from "../routes/static-neighbours.ts";
import { type ActiveWorkload, type EndpointRegistry, workloadKey } from "./endpoint-registry.ts";
import type { LiveMigrations, MigrationPhase } from "./live-migrations.ts";
import { floatingAddresses, floatingAddressTargets } from "./nat-rules.ts";

export interface WorkloadInterfacesConfig {
  readonly versions: readonly IpVersion[];
  readonly floatingIps: boolean;
  readonly routeProtocol: number;
  readonly routeSource: Readonly<Partial<Record<IpVersion, IpAddress>>>;
  readonly routePriority: Readonly<Record<IpVersion, number>>;
  /** The priority during a live migration to this node. */
  readonly elevatedPriority?: Readonly<Record<IpVersion, number>>;
}

export interface WorkloadInterfacesDeps {
  readonly config: WorkloadInterfacesConfig;
  readonly registry: EndpointRegistry;
  /** Decides by name, even if the workload is not known. */
  readonly isWorkload: (interfaceName: string) => boolean;
  readonly sysctls: Sysctls;
  readonly addresses: Addresses;
  /** Empty if Felix does not write routes. */
  readonly routes: readonly RouteTable[];
  readonly neighbours: StaticNeighbours;
  readonly connections: Pick<StaleConnections, "setInterface" | "resolveOwners">;
  readonly migrations?: Pick<LiveMigrations, "phaseOf" | "takeChanged">;
  readonly logger: Logger;
}

const RETRY_MS = 1000;

export class WorkloadInterfaces implements Manager {
  readonly name = "workload interfaces";
  readonly #deps: WorkloadInterfacesDeps;
  readonly #dirty: Set<string>;
  readonly #placed = new Map<string, readonly DesiredRoute[]>();
  readonly #arp = new Map<string, readonly IpAddress[]>();
  readonly #floating = new Map<string, DesiredRoute>();
  /** Interfaces whose sysctls are written. */
  readonly #configured = new Set<string>();
  readonly #peeringAddresses = new Map<string, string>();
  readonly #defaultRpFilter: string;
  #peering: Readonly<Record<IpVersion, IpAddress | undefined>> = { 4: undefined, 6: undefined };

  constructor(deps: WorkloadInterfacesDeps) {
    this.#deps = deps;
    this.#dirty = deps.registry.watchWorkloads();
    this.#defaultRpFilter = readOr(deps.sysctls, ["net", "ipv4", "conf", "default", "rp_filter"], "1");
  }

  /** True if the sysctls of a workload interface are written. */
  isConfigured(interfaceName: string): boolean {
    return this.#configured.has(interfaceName);
  }

  /** Returns the sysctls of all configured interfaces. */
  *desiredSettings(): Iterable<KernelSetting> {
    for (const name of this.#configured) yield* this.#settings(name);
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type !== "globalBgpConfigUpdate") return;
    this.#peering = {
      4: tryParseAddress(message.localWorkloadPeeringIpV4),
      6: tryParseAddress(message.localWorkloadPeeringIpV6),
    };
    for (const name of this.#deps.registry.activeWorkloads.keys()) this.#dirty.add(name);
  }

  async apply(): Promise<ApplyOutcome> {
    for (const name of this.#deps.migrations?.takeChanged() ?? []) this.#dirty.add(name);
    if (this.#dirty.size === 0) return {};
    const failed = new Set<string>();
    for (const name of this.#dirty) {
      const workload = this.#deps.registry.activeWorkloads.get(name);
      this.#applyRoutes(name, workload);
      if (!this.#applySettings(name, workload)) failed.add(name);
    }
    this.#applyFloating();
    this.#dirty.clear();
    for (const name of failed) this.#dirty.add(name);
    await this.#deps.connections.resolveOwners();
    return failed.size > 0 ? { againInMs: RETRY_MS } : {};
  }

  // --- routes ----------------------------------------------------------------------------------------------------------

  #applyRoutes(name: string, workload: ActiveWorkload | undefined): void {
    const { routes, neighbours } = this.#deps;
    const isActive = workload?.endpoint.state === "active";
    const desired = isActive ? this.#routesOf(workload) : [];
    const keep = new Set(desired.map((route) => `${route.destination} ${route.priority}`));
    for (const table of routes) {
      const ofFamily = (route: DesiredRoute) => route.destination.includes(":") === (table.version === 6);
      for (const route of this.#placed.get(name) ?? [])
        if (ofFamily(route) && !keep.has(`${route.destination} ${route.priority}`))
          table.remove("localWorkload", route);
      for (const route of desired) if (ofFamily(route)) table.set("localWorkload", route);
      if (workload !== undefined && isActive && this.#phaseOf(name) === "expected")
        for (const net of table.version === 4 ? workload.endpoint.ipv4Nets : workload.endpoint.ipv6Nets)
          table.forbid(net);
    }
    if (desired.length > 0) this.#placed.set(name, desired);
    else this.#placed.delete(name);
    this.#setConnectionOwner(name, workload, desired);

    const mac = workload?.endpoint.mac ?? "";
    // If Felix does not write routes, it does not write ARP entries either.
    const arpAddresses = isActive && mac !== "" && routes.length > 0 ? this.#arpAddressesOf(workload) : [];
    for (const address of this.#arp.get(name) ?? [])
      if (!arpAddresses.includes(address)) neighbours.remove(name, address);
    for (const address of arpAddresses) neighbours.set(name, address, mac);
    if (arpAddresses.length > 0) this.#arp.set(name, arpAddresses);
    else this.#arp.delete(name);
  }

  #setConnectionOwner(name: string, workload: ActiveWorkload | undefined, desired: readonly DesiredRoute[]): void {
    const { connections, registry } = this.#deps;
    if (workload === undefined || desired.length === 0) return connections.setInterface(name, undefined);
    connections.setInterface(name, {
      endpoint: workloadKey(workload.id),
      destinations: desired.map(({ destination }) => destination),
      link: registry.interfaces.get(name),
    });
  }

  #arpAddressesOf(workload: ActiveWorkload): IpAddress[] {
    const floating = floatingAddresses(workload, 4, this.#deps.config.floatingIps);
    return [...workload.endpoint.ipv4Nets.map(cidrAddress), ...floating.map(({ external }) => external)];
  }

  /** Returns no routes for a virtual machine that still runs on another node. */
  #routesOf({ endpoint }: ActiveWorkload): DesiredRoute[] {
    if (this.#phaseOf(endpoint.name) === "expected") return [];
    return [...endpoint.ipv4Nets, ...endpoint.ipv6Nets].map((net) => this.#route(endpoint.name, net));
  }

  #phaseOf(interfaceName: string): MigrationPhase {
    return this.#deps.migrations?.phaseOf(interfaceName) ?? "settled";
  }

  #route(interfaceName: string, destination: Cidr): DesiredRoute {
    const version = destination.includes(":") ? 6 : 4;
    const { routeProtocol, routeSource, routePriority, elevatedPriority = routePriority } = this.#deps.config;
    const isSettled = this.#phaseOf(interfaceName) === "settled";
    const source = routeSource[version];
    return {
      destination,
      interfaceName,
      scope: "link",
      protocol: routeProtocol,
      priority: (isSettled ? routePriority : elevatedPriority)[version],
      source,
    };
  }

  /** A floating address is routed to the workload that its NAT rule selects, and to no other that claims it. */
  #applyFloating(): void {
    const { registry, routes } = this.#deps;
    for (const table of routes) {
      const { floatingIps } = this.#deps.config;
      const owners = floatingAddressTargets(registry, table.version, floatingIps);
      const desired = new Map<string, DesiredRoute>();
      for (const workload of owners.size === 0 ? [] : registry.activeWorkloads.values()) {
        const { endpoint } = workload;
        if (endpoint.state !== "active" || this.#phaseOf(endpoint.name) === "expected") continue;
        for (const { external, internal } of floatingAddresses(workload, table.version, floatingIps))
          if (owners.get(external) === internal) desired.set(external, this.#route(endpoint.name, hostCidr(external)));
      }
      for (const [external, route] of this.#floating) {
        if (external.includes(":") !== (table.version === 6)) continue;
        const now = desired.get(external);
        if (now !== undefined && now.interfaceName === route.interfaceName && now.priority === route.priority) continue;
        table.remove("localWorkload", route);
        this.#floating.delete(external);
      }
      for (const [external, route] of desired) {
        table.set("localWorkload", route);
        this.#floating.set(external, route);
      }
    }
  }

  // --- settings --------------------------------------------------------------------------------------------------------

  /** @returns false if the sysctls must be written again */
  #applySettings(name: string, workload: ActiveWorkload | undefined): boolean {
    const isUp = this.#deps.registry.interfaces.get(name)?.state === "up";
    if (!isUp || !(workload !== undefined || this.#deps.isWorkload(name))) {
      this.#configured.delete(name); // a new interface with this name has default settings
      this.#peeringAddresses.delete(name);
      return true;
    }
    try {
      this.#writeSettings(name);
      this.#writePeeringAddress(name, workload?.endpoint.localBgpPeer !== undefined);
    } catch (error) {
      this.#configured.delete(name);
      if (hasErrno(error, "ENOENT", "ENODEV")) return true; // the interface was deleted
      this.#deps.logger.warn("configuring a workload interface failed; retrying", {
        interface: name,
        error: describeError(error),
      });
      return false;
    }
    this.#configured.add(name);
    return true;
  }

  #writeSettings(name: string): void {
    for (const { path, value, isOptional = false } of this.#settings(name))
      try {
        setSysctl(this.#deps.sysctls, path, value);
      } catch (error) {
        if (!isOptional) throw error;
      }
  }

  #settings(name: string): KernelSetting[] {
    const v4 = (key: string): SysctlPath => ["net", "ipv4", "conf", name, key];
    const v6 = (key: string): SysctlPath => ["net", "ipv6", "conf", name, key];
    const endpoint = this.#deps.registry.activeWorkloads.get(name)?.endpoint;
    const maySpoof = (endpoint?.allowSpoofedSourcePrefixes.length ?? 0) > 0;
    const settings: KernelSetting[] = [
      // A workload must not set a default route of the host. Optional, because the kernel may not have IPv6.
      { path: v6("accept_ra"), value: 0, isOptional: true },
      { path: v4("route_localnet"), value: 1 },
      { path: ["net", "ipv4", "neigh", name, "proxy_delay"], value: 0, isOptional: true },
      { path: v4("proxy_arp"), value: 1 },
      { path: v4("forwarding"), value: 1 },
      { path: v4("rp_filter"), value: maySpoof ? 0 : this.#defaultRpFilter },
    ];
    if (!this.#deps.config.versions.includes(6)) return settings;
    return [...settings, { path: v6("proxy_ndp"), value: 1 }, { path: v6("forwarding"), value: 1 }];
  }

  /** Assigns the address for BGP sessions with the workload. */
  #writePeeringAddress(name: string, isPeer: boolean): void {
    const link = this.#deps.registry.interfaces.get(name)?.index;
    if (link === undefined) return;
    const desired = isPeer ? this.#deps.config.versions.flatMap((v) => this.#peering[v] ?? []) : [];
    const text = desired.join(" ");
    const before = this.#peeringAddresses.get(name);
    if (before === text || (before === undefined && text === "")) return;
    const { addresses } = this.#deps;
    const length = (address: IpAddress) => (address.includes(":") ? 128 : 32);
    for (const address of (before ?? "").split(" ").filter((a) => a !== "" && !desired.includes(a as IpAddress)))
      addresses.delete({ link, address: address as IpAddress, length: length(address as IpAddress) });
    for (const address of desired) addresses.replace({ link, address, length: length(address), scope: "link" });
    this.#peeringAddresses.set(name, text);
  }
}

function readOr(sysctls: Sysctls, path: SysctlPath, fallback: string): string {
  try {
    return sysctls.read(path);
  } catch {
    return fallback;
  }
}
