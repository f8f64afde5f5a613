// Builds the parts of the Linux dataplane from the configuration and the kernel, and connects them:
//
//                    wireRules                              wireRoutes
//   config ─► EndpointRegistry, rule managers ─► routes of workloads, tunnels, WireGuard
//                     │                                         │
//             sets, rule tables                    links, route tables, neighbours
//                     └────────────► ApplyLoop ◄────────────────┘
//                                        ▲
//                                    wireWatches: interfaces, host, rules written by other programs
//
// The parts do not start here: `LinuxDataplane.run` starts the apply loop and the watches.
import { RT_TABLE_MAIN } from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip/ip.ts";
import type { Logger } from "../lib/log/log.ts";
import { Sweeper } from "./cleanup/sweeper.ts";
import { createClusterNetwork } from "./cluster-network.ts";
import { canOffload } from "./host/flow-offload.ts";
import { describeMissingNflog, logMissingNflog } from "./host/nflog-support.ts";
import { HostWatch } from "./host/host-watch.ts";
import type { LinuxKernel } from "./host/linux-kernel.ts";
import type { Mtus } from "./host/mtu.ts";
import { hostSettings } from "./host/prepare-host.ts";
import { InterfaceMonitor } from "./interfaces/interface-monitor.ts";
import { KernelSettings } from "./interfaces/kernel-settings.ts";
import { LegacyWatch } from "./iptables/legacy-watch.ts";
import type { ApplyLoop } from "./loop/apply-loop.ts";
import type { Manager, Reconciler, SetReconciler } from "./loop/manager.ts";
import type { DataplaneStats } from "./loop/stats.ts";
import { BandwidthLimits } from "./managers/bandwidth-limits.ts";
import type { ActiveWorkload, EndpointRegistry } from "./managers/endpoint-registry.ts";
import { EndpointStatus } from "./managers/endpoint-status.ts";
import { FlowtableDevices } from "./managers/flowtable-devices.ts";
import { elevatedRoutes, LiveMigrations } from "./managers/live-migrations.ts";
import { LocalSubnetNeighbours, networkOf } from "./managers/local-subnet.ts";
import { WorkloadInterfaces } from "./managers/workload-interfaces.ts";
import { RulesetWatch } from "./nft/ruleset-watch.ts";
import { type DataplaneFacts, type DataplaneParameters, rulesConfig, areFlowLogsEnabled } from "./parameters.ts";
import { mainTableOwnership } from "./routes/ownership.ts";
import { RouteTable } from "./routes/route-table.ts";
import { StaleConnections } from "./routes/stale-connections.ts";
import { StaticNeighbours } from "./routes/static-neighbours.ts";
import { createRuleBackend, type RuleBackend } from "./rule-backend.ts";
import { isWorkloadInterface, type RulesConfig } from "./rules/config.ts";
import type { RejectedItem } from "./rules/fallback/rejection-log.ts";
import { createRuleManagers } from "./rule-managers.ts";
import { createEncryption } from "./wireguard/encryption.ts";

/** What all three functions need. */
export interface WiringInputs {
  readonly parameters: DataplaneParameters;
  readonly facts: DataplaneFacts;
  readonly kernel: LinuxKernel;
  readonly logger: Logger;
  readonly stats: DataplaneStats;
  readonly mtus: Mtus;
  /** Called when a virtual machine that migrates to this node has arrived. */
  readonly onArrival?: (workload: ActiveWorkload) => void;
  /** Called when the host no longer matches what the dataplane was built for: the caller must build a new one. */
  readonly onHostChange?: (reason: string) => void;
}

/** The IP families that calico-ts programs. */
const enabledVersions = ({ parameters }: WiringInputs): readonly IpVersion[] => (parameters.Ipv6Support ? [4, 6] : [4]);

const isExcludedBy =
  ({ parameters }: WiringInputs) =>
  (interfaceName: string): boolean =>
    parameters.InterfaceExclude.some((pattern) => pattern.test(interfaceName));

export interface RuleParts {
  readonly config: RulesConfig;
  readonly registry: EndpointRegistry;
  readonly managers: readonly Manager[];
  readonly sets: readonly SetReconciler[];
  readonly tables: readonly Reconciler[];
  readonly rejected: () => readonly RejectedItem[];
  readonly size: RuleBackend["size"];
  readonly watched: RuleBackend["watched"];
  readonly fingerprinted: RuleBackend["fingerprinted"];
}

/** Builds everything that writes packet-filter rules and IP sets. */
export function wireRules(inputs: WiringInputs): RuleParts {
  const { parameters, facts, kernel, logger, stats } = inputs;
  const flowOffload = canOffload(parameters, kernel.rules, logger);
  const { nflogError } = kernel;
  const isNflogMissing = nflogError !== undefined && areFlowLogsEnabled(parameters);
  if (isNflogMissing) logMissingNflog(logger, nflogError);
  const config = rulesConfig(parameters, { ...facts, flowOffload, hasNflog: !isNflogMissing }, kernel.rules.backend);
  const rules = createRuleBackend(kernel.rules, {
    config,
    parameters,
    versions: enabledVersions(inputs),
    logger,
    stats,
    deviceExists: (name) => kernel.routes.links.get(name) !== undefined,
  });
  const { registry, managers } = createRuleManagers({
    config,
    families: rules.families,
    chainNameLimit: rules.chainNameLimit,
    hostname: facts.hostname,
    externalNodes: parameters.ExternalNodesCIDRList,
    floatingIps: parameters.FloatingIPs === "Enabled",
    logger,
    aliasOf: (name) => kernel.routes.links.get(name)?.alias,
    isExcludedInterface: isExcludedBy(inputs),
    arp: rules.arp,
  });
  const setDevices = rules.setFlowtableDevices;
  const pattern = parameters.NFTablesFlowTableDataIfacePattern;
  const offload =
    config.flowtable === undefined || setDevices === undefined
      ? []
      : [new FlowtableDevices(registry, (name) => pattern?.test(name) === true, setDevices)];
  const sweepers = kernel.leftovers === undefined ? [] : [new Sweeper(kernel.leftovers, config, logger)];
  const missing = isNflogMissing ? [describeMissingNflog(nflogError)] : [];
  return {
    config,
    registry,
    managers: [...managers, ...offload],
    sets: [...rules.sets, ...sweepers],
    tables: rules.tables,
    rejected: () => [...missing, ...rules.rejected()],
    size: rules.size,
    watched: rules.watched,
    fingerprinted: rules.fingerprinted,
  };
}

export interface RouteParts {
  readonly managers: readonly Manager[];
  /** Written before the routes that use them. */
  readonly links: readonly Reconciler[];
  /** Everything else besides rules: routes, neighbours, conntrack entries, bandwidth limits, sysctls. */
  readonly reconcilers: readonly Reconciler[];
  readonly tables: readonly RouteTable[];
  /** Managers that hold sockets or timers. */
  readonly disposables: readonly Disposable[];
}

/** Builds everything that writes routes, neighbours, tunnel devices and settings of interfaces. */
export function wireRoutes(
  inputs: WiringInputs,
  { config, registry }: Pick<RuleParts, "config" | "registry">,
  applySoon: () => void,
): RouteParts {
  const { parameters, facts, kernel, logger, stats, mtus } = inputs;
  const versions = enabledVersions(inputs);
  const isWorkload = (name: string) => isWorkloadInterface(config, name);
  const onResync = (seconds: number) => stats.routeResyncSeconds.add(seconds);
  const connections = new StaleConnections(async (addresses) => {
    const started = performance.now();
    await kernel.conntrack.deleteByAddress(addresses);
    stats.conntrackSeconds.add((performance.now() - started) / 1000);
  });
  const ownership = mainTableOwnership({
    deviceRouteProtocol: parameters.DeviceRouteProtocol,
    removeExternalRoutes: parameters.RemoveExternalRoutes,
    isWorkload,
    isBgpPeer: (name) => registry.activeWorkloads.get(name)?.endpoint.localBgpPeer !== undefined,
    ownsIpip: ["Enabled", "EnabledIPIPOnly"].includes(parameters.ProgramClusterRoutes),
  });
  const mainTables = parameters.RouteSyncDisabled
    ? []
    : versions.map(
        (version) =>
          new RouteTable({
            version,
            table: RT_TABLE_MAIN,
            routes: kernel.routes.routes,
            ownership,
            logger,
            onResync,
            flushConnections: (addresses) => connections.flush(version, addresses),
          }),
      );
  const neighbours = new StaticNeighbours(kernel.routes.neighbours, logger);
  const elevatedPriority = { 4: parameters.IPv4ElevatedRoutePriority, 6: parameters.IPv6ElevatedRoutePriority };
  const normalPriority = { 4: parameters.IPv4NormalRoutePriority, 6: parameters.IPv6NormalRoutePriority };
  const migrations = new LiveMigrations({
    registry,
    convergenceMs: parameters.LiveMigrationRouteConvergenceTime * 1000,
    watchGratuitousArp: kernel.watchGratuitousArp,
    existingElevatedRoutes: () => elevatedRoutes(kernel.routes.routes, RT_TABLE_MAIN, elevatedPriority, normalPriority),
    onArrival: inputs.onArrival,
    applySoon,
    logger,
  });
  const workloads = new WorkloadInterfaces({
    config: {
      versions,
      floatingIps: parameters.FloatingIPs === "Enabled",
      routeProtocol: parameters.DeviceRouteProtocol,
      routeSource: {
        ...(parameters.DeviceRouteSourceAddress === "" ? {} : { 4: parameters.DeviceRouteSourceAddress }),
        ...(parameters.DeviceRouteSourceAddressIPv6 === "" ? {} : { 6: parameters.DeviceRouteSourceAddressIPv6 }),
      },
      routePriority: normalPriority,
      elevatedPriority,
    },
    migrations,
    registry,
    isWorkload,
    sysctls: kernel.sysctls,
    addresses: kernel.routes.addresses,
    routes: mainTables,
    neighbours,
    connections,
    logger,
  });
  const { openNeighbourResponder } = kernel;
  const localSubnet =
    parameters.LocalSubnetL2Reachability === "PodsAndLoadBalancers" && openNeighbourResponder !== undefined
      ? [
          new LocalSubnetNeighbours({
            hostname: facts.hostname,
            versions,
            isWorkload,
            isExpected: (name) => migrations.phaseOf(name) === "expected",
            network: networkOf(kernel.routes, openNeighbourResponder),
            refreshMs: parameters.LocalSubnetL2ReachabilityRefreshInterval * 1000,
            logger,
          }),
        ]
      : [];
  const cluster = createClusterNetwork({
    parameters,
    facts,
    mtus,
    kernel: kernel.routes,
    registry,
    versions,
    tables: parameters.RouteSyncDisabled ? undefined : mainTables,
    logger,
    disableChecksumOffload: kernel.disableChecksumOffload,
  });
  const encryption = createEncryption({
    parameters,
    hostname: facts.hostname,
    versions,
    mtus,
    mark: config.marks.wireguard,
    kernel: { ...kernel.routes, wireguard: kernel.wireguard },
    sysctls: kernel.sysctls,
    logger,
    onRouteResync: onResync,
  });
  const { trafficControl: control } = kernel;
  const limits =
    control === undefined ? [] : [new BandwidthLimits({ registry, links: kernel.routes.links, control, logger })];
  const settings = new KernelSettings({
    sysctls: kernel.sysctls,
    logger,
    desired: () => [...hostSettings(parameters), ...workloads.desiredSettings()],
  });
  const tables = [...mainTables, ...encryption.tables];
  const interfaceListeners: Manager = {
    name: "interface listeners",
    onUpdate: (message) => {
      for (const table of tables) table.onInterface(message);
      neighbours.onInterface(message);
    },
  };
  const status = new EndpointStatus(registry, (name) => workloads.isConfigured(name));
  return {
    managers: [
      interfaceListeners,
      ...cluster.managers,
      ...encryption.managers,
      migrations,
      ...localSubnet,
      workloads,
      status,
    ],
    links: [...cluster.links, ...encryption.links],
    reconcilers: [
      ...mainTables,
      connections,
      neighbours,
      ...encryption.tables,
      ...encryption.rules,
      ...limits,
      settings,
    ],
    tables,
    disposables: [migrations, ...localSubnet],
  };
}

export interface Watches {
  readonly interfaces: InterfaceMonitor;
  readonly host: HostWatch;
  /** Detect rules that other programs removed or overwrote; by the name that log lines use. */
  readonly rules: ReadonlyMap<string, { check(): void }>;
}

/** Builds everything that watches the host for changes by others. */
export function wireWatches(
  inputs: WiringInputs,
  { tables, watched, fingerprinted }: Pick<RuleParts, "tables" | "watched" | "fingerprinted">,
  loop: Pick<ApplyLoop, "sendInterface" | "applySoon" | "hasApplied">,
): Watches {
  const { parameters, facts, kernel, mtus } = inputs;
  const onChange = () => loop.applySoon();
  const onLoss = () => {
    for (const table of tables) table.queueResync();
    onChange();
  };
  const rules = new Map<string, { check(): void }>();
  if (watched !== undefined)
    rules.set("nftables", new RulesetWatch({ ...watched, isStarted: () => loop.hasApplied, onLoss }));
  if (fingerprinted !== undefined) rules.set("iptables", new LegacyWatch({ tables: fingerprinted, onChange }));
  return {
    rules,
    interfaces: new InterfaceMonitor({
      kernel: kernel.routes,
      onMessage: (message) => loop.sendInterface(message),
      isExcluded: isExcludedBy(inputs),
    }),
    host: new HostWatch({
      links: () => kernel.routes.links.list(),
      mtuPattern: parameters.MTUIfacePattern,
      mtu: mtus.host,
      ipvs: facts.ipvs,
      backend: kernel.rules.backend,
      currentBackend: kernel.currentBackend,
      onChange: (reason) => inputs.onHostChange?.(reason),
    }),
  };
}
