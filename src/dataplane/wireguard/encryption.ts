// Creates the parts that encrypt traffic with WireGuard, for each family; for a family without WireGuard, those that remove it.
import type { DataplaneReport } from "../../calc/index.ts";
import { hasErrno, type Rtnetlink, setSysctl, type Sysctls } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { Manager, Reconciler } from "../loop/manager.ts";
import type { Mtus } from "../host/mtu.ts";
import type { DataplaneParameters } from "../parameters.ts";
import { exclusiveProtocol } from "../routes/ownership.ts";
import { RouteTable } from "../routes/route-table.ts";
import { PeerRegistry } from "./peer-registry.ts";
import { WireguardManager, isWireguardRule } from "./wireguard.ts";
import { WireguardDeviceReconciler, type WireguardKernel } from "./wireguard-device.ts";
import { RoutingRules } from "../routes/routing-rules.ts";

export type WireguardParameters = Pick<
  DataplaneParameters,
  | "WireguardEnabled"
  | "WireguardEnabledV6"
  | "WireguardInterfaceName"
  | "WireguardInterfaceNameV6"
  | "WireguardListeningPort"
  | "WireguardListeningPortV6"
  | "WireguardHostEncryptionEnabled"
  | "WireguardRoutingRulePriority"
  | "WireguardPersistentKeepAlive"
  | "WireguardThreadingEnabled"
  | "RouteTableRange"
  | "RouteTableRanges"
  | "RouteSyncDisabled"
  | "DeviceRouteProtocol"
>;

export interface Encryption {
  readonly managers: readonly Manager[];
  readonly links: readonly Reconciler[];
  readonly tables: readonly RouteTable[];
  /** Written after the routes, because they activate the table. */
  readonly rules: readonly Reconciler[];
}

export interface EncryptionOptions {
  readonly parameters: WireguardParameters;
  readonly hostname: string;
  readonly versions: readonly IpVersion[];
  readonly mtus: Pick<Mtus, "wireguard" | "wireguardV6">;
  readonly mark: number;
  readonly kernel: Rtnetlink & { readonly wireguard?: WireguardKernel };
  readonly sysctls: Sysctls;
  readonly logger: Logger;
  readonly onRouteResync?: (seconds: number) => void;
}

/** Tables 253 to 255 belong to the kernel. */
const RESERVED = new Set([0, 253, 254, 255]);

/** Returns the first configured table. It is reserved for WireGuard even if that is disabled; both families use it. */
export function wireguardTable(p: Pick<WireguardParameters, "RouteTableRange" | "RouteTableRanges">): number {
  const ranges = p.RouteTableRanges.length > 0 ? p.RouteTableRanges : [p.RouteTableRange ?? { min: 1, max: 250 }];
  for (const { min, max } of ranges)
    for (let table = min; table <= max; table++) if (!RESERVED.has(table)) return table;
  return 1;
}

export function wireguardOf(p: WireguardParameters, version: IpVersion) {
  const isV4 = version === 4;
  return {
    isEnabled: isV4 ? p.WireguardEnabled : p.WireguardEnabledV6,
    interfaceName: isV4 ? p.WireguardInterfaceName : p.WireguardInterfaceNameV6,
    port: isV4 ? p.WireguardListeningPort : p.WireguardListeningPortV6,
    setting: isV4 ? "WireguardEnabled" : "WireguardEnabledV6",
  };
}

export function createEncryption(options: EncryptionOptions): Encryption {
  const parts = options.versions.map((version) => {
    const { isEnabled, interfaceName } = wireguardOf(options.parameters, version);
    const { wireguard } = options.kernel;
    return isEnabled && interfaceName !== "" && wireguard !== undefined
      ? encryption(options, version, wireguard)
      : removal(options, version);
  });
  return {
    managers: parts.flatMap((part) => part.managers),
    links: parts.flatMap((part) => part.links),
    tables: parts.flatMap((part) => part.tables),
    rules: parts.flatMap((part) => part.rules),
  };
}

function encryption(options: EncryptionOptions, version: IpVersion, wireguard: WireguardKernel): Encryption {
  const { parameters: p, hostname, kernel, mark, logger, mtus } = options;
  const { interfaceName, port, setting } = wireguardOf(p, version);
  const encryptsHosts = p.WireguardHostEncryptionEnabled;
  if (encryptsHosts && version === 4) enableMarkInReversePathFilter(options.sysctls, logger);
  const { links, addresses } = kernel;
  const peers = new PeerRegistry({
    hostname,
    version,
    encryptsHosts,
    port,
    keepaliveSeconds: p.WireguardPersistentKeepAlive,
  });
  const device = new WireguardDeviceReconciler({
    version,
    interfaceName,
    port,
    mark,
    mtu: version === 4 ? mtus.wireguard : mtus.wireguardV6,
    isThreaded: p.WireguardThreadingEnabled,
    kernel: { links, addresses, wireguard },
    logger,
    setting,
  });
  const index = wireguardTable(p);
  const routeProtocol = exclusiveProtocol(p.DeviceRouteProtocol);
  const routes = p.RouteSyncDisabled ? undefined : wireguardRoutes(options, version, index, interfaceName);
  const manager = new WireguardManager({
    version,
    hostname,
    interfaceName,
    rulePriority: p.WireguardRoutingRulePriority,
    mark,
    routeProtocol,
    peers,
    device,
    logger,
    table: routes === undefined ? undefined : { routes, rules: kernel.rules, index },
  });
  return {
    managers: [manager],
    links: [device],
    tables: routes === undefined ? [] : [routes],
    rules: manager.rules === undefined ? [] : [manager.rules],
  };
}

/** Connections are not flushed: an address does not move if its traffic is encrypted. */
function wireguardRoutes(
  options: EncryptionOptions,
  version: IpVersion,
  table: number,
  interfaceName: string,
): RouteTable {
  const protocol = exclusiveProtocol(options.parameters.DeviceRouteProtocol);
  return new RouteTable({
    version,
    table,
    routes: options.kernel.routes,
    logger: options.logger,
    ownership: { isOwned: (route, name) => name === interfaceName || route.protocol === protocol },
    onResync: options.onRouteResync,
  });
}

/** Removes the rule, then the routes, and the published key. The device was removed at start. */
function removal(options: EncryptionOptions, version: IpVersion): Encryption {
  const { parameters: p, kernel, logger } = options;
  let isReported = false;
  const keyRemoval: Manager = {
    name: `WireGuard IPv${version} (off)`,
    onUpdate: () => {},
    reports: (): readonly DataplaneReport[] => {
      if (isReported) return [];
      isReported = true;
      return [{ type: "wireguardStatus", ipVersion: version, publicKey: "" }];
    },
  };
  if (p.RouteSyncDisabled) return { managers: [keyRemoval], links: [], tables: [], rules: [] };
  const table = wireguardTable(p);
  const isOwned = isWireguardRule(table);
  const rules = new RoutingRules({ version, table, rules: kernel.rules, logger, isOwned });
  const routes = wireguardRoutes(options, version, table, wireguardOf(p, version).interfaceName);
  return { managers: [keyRemoval], links: [rules], tables: [routes], rules: [] };
}

/** Removes the devices of disabled families. Done first, because hosts may not reach each other while such a device exists. */
export function removeUnusedDevices(options: {
  readonly parameters: WireguardParameters;
  readonly links: Rtnetlink["links"];
  readonly logger: Logger;
}): void {
  for (const version of [4, 6] as const) {
    const { isEnabled, interfaceName } = wireguardOf(options.parameters, version);
    if (!isEnabled) removeDevice(options.links, interfaceName, options.logger);
  }
}

function removeDevice(links: Rtnetlink["links"], name: string, logger: Logger): void {
  try {
    if (links.get(name)?.kind !== "wireguard") return;
    links.delete(name);
    logger.info("removed a WireGuard device", { device: name });
  } catch (error) {
    if (!hasErrno(error, "ENODEV"))
      logger.warn("removing a WireGuard device failed", { device: name, error: describeError(error) });
  }
}

/** Lets the reverse-path filter consider the mark, so that replies through the tunnel are accepted. */
function enableMarkInReversePathFilter(sysctls: Sysctls, logger: Logger): void {
  try {
    setSysctl(sysctls, ["net", "ipv4", "conf", "all", "src_valid_mark"], 1);
  } catch (error) {
    logger.warn("setting a sysctl failed", {
      setting: "net.ipv4.conf.all.src_valid_mark",
      error: describeError(error),
    });
  }
}
