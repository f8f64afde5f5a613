// WireGuard as the settings ask for it, per family; and for a family without it, the removal of what it left.
import type { DataplaneReport } from "../../calc/index.ts";
import { hasErrno, type RouteKernel, setSysctl, type Sysctls } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { Manager, Reconciler } from "../manager.ts";
import type { Mtus } from "../mtu.ts";
import type { DataplaneParameters } from "../parameters.ts";
import { exclusiveProtocol } from "../routes/ownership.ts";
import { RouteTable } from "../routes/route-table.ts";
import { PeerBook } from "./peer-book.ts";
import { WireguardManager, wireguardRuleOwner } from "./wireguard.ts";
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
  /** After the routes: they make the tables count. */
  readonly rules: readonly Reconciler[];
}

export interface EncryptionOptions {
  readonly parameters: WireguardParameters;
  readonly hostname: string;
  readonly versions: readonly IpVersion[];
  readonly mtus: Pick<Mtus, "wireguard" | "wireguardV6">;
  readonly mark: number;
  readonly kernel: RouteKernel & { readonly wireguard?: WireguardKernel };
  readonly sysctls: Sysctls;
  readonly logger: Logger;
  readonly onRouteResync?: (seconds: number) => void;
}

/** Tables 253 to 255 are the kernel's. */
const RESERVED = new Set([0, 253, 254, 255]);

/** The first table we may use. It is set apart for WireGuard even while that is off; both families use the number. */
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
  if (encryptsHosts && version === 4) validateByMark(options.sysctls, logger);
  const { links, addresses } = kernel;
  const book = new PeerBook({
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
  const routes = p.RouteSyncDisabled ? undefined : ownTable(options, version, index, interfaceName);
  const manager = new WireguardManager({
    version,
    hostname,
    interfaceName,
    rulePriority: p.WireguardRoutingRulePriority,
    mark,
    routeProtocol,
    book,
    device,
    logger,
    ...(routes === undefined ? {} : { table: { routes, rules: kernel.rules, index } }),
  });
  return {
    managers: [manager],
    links: [device],
    tables: routes === undefined ? [] : [routes],
    rules: manager.rules === undefined ? [] : [manager.rules],
  };
}

/** Moving a route to the encrypted way is no move of the address: connections live on. */
function ownTable(options: EncryptionOptions, version: IpVersion, table: number, interfaceName: string): RouteTable {
  const ours = exclusiveProtocol(options.parameters.DeviceRouteProtocol);
  return new RouteTable({
    version,
    table,
    routes: options.kernel.routes,
    logger: options.logger,
    ownership: { isOurs: (route, name) => name === interfaceName || route.protocol === ours },
    ...(options.onRouteResync === undefined ? {} : { onResync: options.onRouteResync }),
  });
}

/** The rule goes first, then the routes, and the key is taken back; the device itself went at the start of the day. */
function removal(options: EncryptionOptions, version: IpVersion): Encryption {
  const { parameters: p, kernel, logger } = options;
  let isTold = false;
  const teller: Manager = {
    name: `WireGuard IPv${version} (off)`,
    onUpdate: () => {},
    reports: (): readonly DataplaneReport[] => {
      if (isTold) return [];
      isTold = true;
      return [{ type: "wireguardStatus", ipVersion: version, publicKey: "" }];
    },
  };
  if (p.RouteSyncDisabled) return { managers: [teller], links: [], tables: [], rules: [] };
  const table = wireguardTable(p);
  const isOurs = wireguardRuleOwner(table);
  const rules = new RoutingRules({ version, table, rules: kernel.rules, logger, isOurs });
  const routes = ownTable(options, version, table, wireguardOf(p, version).interfaceName);
  return { managers: [teller], links: [rules], tables: [routes], rules: [] };
}

/** Removes devices of families that are off. Before anything else: while a device stands, hosts may not hear each other. */
export function removeUnusedDevices(options: {
  readonly parameters: WireguardParameters;
  readonly links: RouteKernel["links"];
  readonly logger: Logger;
}): void {
  for (const version of [4, 6] as const) {
    const { isEnabled, interfaceName } = wireguardOf(options.parameters, version);
    if (!isEnabled) removeDevice(options.links, interfaceName, options.logger);
  }
}

function removeDevice(links: RouteKernel["links"], name: string, logger: Logger): void {
  try {
    if (links.get(name)?.kind !== "wireguard") return;
    links.delete(name);
    logger.info("WireGuard device was removed", { device: name });
  } catch (error) {
    if (!hasErrno(error, "ENODEV"))
      logger.warn("WireGuard device could not be removed", { device: name, error: describeError(error) });
  }
}

/** A reply that comes back through the tunnel must find the way it would have gone, mark and all. */
function validateByMark(sysctls: Sysctls, logger: Logger): void {
  try {
    setSysctl(sysctls, ["net", "ipv4", "conf", "all", "src_valid_mark"], 1);
  } catch (error) {
    logger.warn("kernel setting could not be written", {
      setting: "net.ipv4.conf.all.src_valid_mark",
      error: describeError(error),
    });
  }
}
