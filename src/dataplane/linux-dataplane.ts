// The whole Linux dataplane of one agent, wired: kernel in, messages in, kernel state out.
//
//   EventFollower ─► InterfaceMonitor ┐
//                                     ├► ApplyLoop ─► managers ─► planes (nftables | iptables + ipset), routes, neighbours
//   calc ─► DataplaneMessage ─────────┘                └► EndpointStatus ─► reports
import type { DataplaneDriver, DataplaneMessage, DataplaneReport } from "../calc/index.ts";
import { EventMonitor, type KernelEvent, RT_TABLE_MAIN, type Route, type WireguardDevice } from "../kernel/index.ts";
import type { HealthReport } from "../lib/health.ts";
import type { IpVersion } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import { ApplyLoop, type ApplyLoopOptions } from "./apply-loop.ts";
import { everySecond } from "./every-second.ts";
import { EventFollower } from "./interfaces/event-follower.ts";
import { InterfaceMonitor } from "./interfaces/interface-monitor.ts";
import { KernelSettings } from "./interfaces/kernel-settings.ts";
import type { Manager } from "./manager.ts";
import { BandwidthLimits } from "./managers/bandwidth-limits.ts";
import { EndpointStatus } from "./managers/endpoint-status.ts";
import type { ActiveWorkload } from "./managers/endpoint-registry.ts";
import { FlowtableDevices } from "./managers/flowtable-devices.ts";
import { LocalSubnetNeighbours, networkOf } from "./managers/local-subnet.ts";
import { betterRoutes, LiveMigrations } from "./managers/live-migrations.ts";
import { WorkloadInterfaces } from "./managers/workload-interfaces.ts";
import { canOffload } from "./flow-offload.ts";
import { noRecords, tellNoRecords } from "./flow-records.ts";
import type { LinuxKernel } from "./linux-kernel.ts";
import { type DataplaneFacts, type DataplaneParameters, rulesConfig, wantsFlowLogs } from "./parameters.ts";
import { createClusterNetwork } from "./cluster-network.ts";
import { HostWatch } from "./host-watch.ts";
import { detectMtus } from "./mtu.ts";
import { type DataplaneSizes, DataplaneStats } from "./stats.ts";
import { Sweeper } from "./sweeper.ts";
import { hostSettings, prepareHost } from "./start-of-day.ts";
import { createRulePlanes } from "./rule-planes.ts";
import { createRuleManagers } from "./rules-dataplane.ts";
import { LegacyWatch } from "./iptables/legacy-watch.ts";
import { RulesetWatch } from "./nft/ruleset-watch.ts";
import { mainTableOwnership } from "./routes/ownership.ts";
import { RouteTable } from "./routes/route-table.ts";
import { StaleConnections } from "./routes/stale-connections.ts";
import { StaticNeighbours } from "./routes/static-neighbours.ts";
import { isWorkloadInterface } from "./rules/config.ts";
import { describeRefused, type Refused } from "./rules/refused.ts";
import { createEncryption, wireguardOf } from "./wireguard/create.ts";

export interface LinuxDataplaneOptions {
  readonly parameters: DataplaneParameters;
  readonly facts: DataplaneFacts;
  readonly kernel: LinuxKernel;
  readonly logger: Logger;
  readonly report: (report: DataplaneReport) => void;
  readonly health?: (report: HealthReport) => void;
  readonly roundMs?: number;
  /** Where the CNI plugin finds the MTU for pods. */
  readonly mtuFile?: string;
  readonly onApplied?: NonNullable<ApplyLoopOptions["onApplied"]>;
  /** A machine that was on its way here has arrived. */
  readonly onArrival?: (workload: ActiveWorkload) => void;
  /** Something of the host changed that the dataplane was built for: it must be built anew. */
  readonly onHostChange?: (reason: string) => void;
}

export class LinuxDataplane implements DataplaneDriver {
  readonly #options: LinuxDataplaneOptions;
  readonly #log: Logger;
  readonly #loop: ApplyLoop;
  readonly #interfaces: InterfaceMonitor;
  readonly #watch: HostWatch;
  /** Who notices that somebody else wrote rules. */
  readonly #ruleWatches = new Map<string, { check(): void }>();
  #hasApplied = false;
  readonly #tables: readonly RouteTable[];
  readonly #listeners: readonly Disposable[];
  /** What it does, counted. */
  readonly stats = new DataplaneStats();
  /** How much there is now. */
  readonly sizes: () => DataplaneSizes;
  /** What the kernel does not take, and what is done instead. */
  readonly refused: () => readonly Refused[];
  /** Our WireGuard devices with their peers, as the kernel has them. */
  readonly wireguardDevices: () => readonly WireguardDevice[];

  constructor(options: LinuxDataplaneOptions) {
    this.#options = options;
    this.#log = options.logger;
    const { parameters, facts, kernel, logger } = options;
    const versions: readonly IpVersion[] = parameters.Ipv6Support ? [4, 6] : [4];
    const flowOffload = canOffload(parameters, kernel.rules, logger);
    const { noFlowRecords } = kernel;
    const hasNoRecords = noFlowRecords !== undefined && wantsFlowLogs(parameters);
    if (hasNoRecords) tellNoRecords(logger, noFlowRecords);
    const config = rulesConfig(parameters, { ...facts, flowOffload, flowRecords: !hasNoRecords }, kernel.rules.backend);
    const isWorkload = (name: string) => isWorkloadInterface(config, name);
    const isExcluded = (name: string) => parameters.InterfaceExclude.some((pattern) => pattern.test(name));
    const floatingIps = parameters.FloatingIPs === "Enabled";

    const { stats } = this;
    const rules = createRulePlanes({
      kernel: kernel.rules,
      config,
      parameters,
      versions,
      logger,
      stats,
      deviceExists: (name) => kernel.routes.links.get(name) !== undefined,
    });
    const { registry, managers: ruleManagers } = createRuleManagers({
      config,
      planes: rules.planes,
      chainNameLimit: rules.chainNameLimit,
      hostname: facts.hostname,
      externalNodes: parameters.ExternalNodesCIDRList,
      floatingIps,
      logger,
      aliasOf: (name) => kernel.routes.links.get(name)?.alias,
      isExcludedInterface: isExcluded,
      ...(rules.arp === undefined ? {} : { arp: rules.arp }),
    });

    const ownership = mainTableOwnership({
      deviceRouteProtocol: parameters.DeviceRouteProtocol,
      removeExternalRoutes: parameters.RemoveExternalRoutes,
      isWorkload,
      isBgpPeer: (name) => registry.activeWorkloads.get(name)?.endpoint.localBgpPeer !== undefined,
      ownsIpip: ["Enabled", "EnabledIPIPOnly"].includes(parameters.ProgramClusterRoutes),
    });
    const connections = new StaleConnections(async (addresses) => {
      const started = performance.now();
      await kernel.conntrack.deleteByAddress(addresses);
      stats.conntrackSeconds.add((performance.now() - started) / 1000);
    });
    const tables = parameters.RouteSyncDisabled
      ? []
      : versions.map(
          (version) =>
            new RouteTable({
              version,
              table: RT_TABLE_MAIN,
              routes: kernel.routes.routes,
              ownership,
              logger,
              onResync: (seconds) => stats.routeResyncSeconds.add(seconds),
              forgetConnections: (addresses) => connections.flush(version, addresses),
            }),
        );
    const neighbours = new StaticNeighbours(kernel.routes.neighbours, logger);
    const betterPriority = { 4: parameters.IPv4ElevatedRoutePriority, 6: parameters.IPv6ElevatedRoutePriority };
    const normalPriority = { 4: parameters.IPv4NormalRoutePriority, 6: parameters.IPv6NormalRoutePriority };
    const migrations = new LiveMigrations({
      registry,
      convergenceMs: parameters.LiveMigrationRouteConvergenceTime * 1000,
      ...(kernel.listenForAnnouncement === undefined ? {} : { listen: kernel.listenForAnnouncement }),
      leftRoutes: () => betterRoutes(kernel.routes.routes, RT_TABLE_MAIN, betterPriority, normalPriority),
      ...(options.onArrival === undefined ? {} : { onArrival: options.onArrival }),
      applySoon: () => this.#loop.applySoon(),
      logger,
    });
    const workloads = new WorkloadInterfaces({
      config: {
        versions,
        floatingIps,
        routeProtocol: parameters.DeviceRouteProtocol,
        routeSource: {
          ...(parameters.DeviceRouteSourceAddress === "" ? {} : { 4: parameters.DeviceRouteSourceAddress }),
          ...(parameters.DeviceRouteSourceAddressIPv6 === "" ? {} : { 6: parameters.DeviceRouteSourceAddressIPv6 }),
        },
        routePriority: normalPriority,
        betterPriority,
      },
      migrations,
      registry,
      isWorkload,
      sysctls: kernel.sysctls,
      addresses: kernel.routes.addresses,
      routes: tables,
      neighbours,
      connections,
      logger,
    });
    const { openNeighbourResponder: open } = kernel;
    const isAnswering = parameters.LocalSubnetL2Reachability === "PodsAndLoadBalancers" && open !== undefined;
    const localSubnet = isAnswering
      ? [
          new LocalSubnetNeighbours({
            hostname: facts.hostname,
            versions,
            isWorkload,
            isExpected: (name) => migrations.phaseOf(name) === "expected",
            network: networkOf(kernel.routes, open),
            refreshMs: parameters.LocalSubnetL2ReachabilityRefreshInterval * 1000,
            logger,
          }),
        ]
      : [];
    this.#listeners = [migrations, ...localSubnet];
    const mtus = detectMtus(kernel.routes.links.list(), parameters, facts);
    const { switchOffChecksums } = kernel;
    const written = parameters.RouteSyncDisabled ? undefined : tables;
    const cluster = createClusterNetwork({
      ...{ parameters, facts, mtus, kernel: kernel.routes, registry, versions, tables: written, logger },
      ...(switchOffChecksums === undefined ? {} : { switchOffChecksums }),
    });
    const encryption = createEncryption({
      parameters,
      hostname: facts.hostname,
      versions,
      mtus,
      mark: config.marks.wireguard,
      kernel: { ...kernel.routes, ...(kernel.wireguard === undefined ? {} : { wireguard: kernel.wireguard }) },
      sysctls: kernel.sysctls,
      logger,
      onRouteResync: (seconds) => stats.routeResyncSeconds.add(seconds),
    });
    prepareHost({
      parameters,
      facts,
      kernel,
      podMtu: mtus.pod,
      logger,
      ...(options.mtuFile === undefined ? {} : { mtuFile: options.mtuFile }),
    });
    const settings = new KernelSettings({
      sysctls: kernel.sysctls,
      logger,
      written: () => [...hostSettings(parameters), ...workloads.writtenSettings()],
    });
    const interfaceListeners: Manager = {
      name: "interface listeners",
      onUpdate: (message) => {
        for (const table of [...tables, ...encryption.tables]) table.onInterface(message);
        neighbours.onInterface(message);
      },
    };
    const setDevices = rules.setFlowtableDevices;
    const pattern = parameters.NFTablesFlowTableDataIfacePattern;
    const offload =
      config.flowtable === undefined || setDevices === undefined
        ? []
        : [new FlowtableDevices(registry, (name) => pattern?.test(name) === true, setDevices)];
    const control = kernel.trafficControl;
    const limits =
      control === undefined ? [] : [new BandwidthLimits({ registry, links: kernel.routes.links, control, logger })];
    const status = new EndpointStatus(registry, (name) => workloads.isConfigured(name));

    this.#loop = new ApplyLoop({
      parts: {
        managers: [
          interfaceListeners,
          ...ruleManagers,
          ...offload,
          ...cluster.managers,
          ...encryption.managers,
          migrations,
          ...localSubnet,
          workloads,
          status,
        ],
        sets:
          kernel.leftovers === undefined ? rules.sets : [...rules.sets, new Sweeper(kernel.leftovers, config, logger)],
        tables: rules.tables,
        links: [...cluster.links, ...encryption.links],
        routes: [...tables, connections, neighbours, ...encryption.tables, ...encryption.rules, ...limits, settings],
      },
      logger,
      report: options.report,
      ...(options.health === undefined ? {} : { health: options.health }),
      healthDetail: () => describeRefused(this.refused()),
      onApplied: (round) => {
        this.#hasApplied = true;
        options.onApplied?.(round);
      },
      ...(options.roundMs === undefined ? {} : { roundMs: options.roundMs }),
      onBatch: ({ interfaces, addresses }) => {
        if (interfaces > 0) stats.interfaceBatch.add(interfaces);
        if (addresses > 0) stats.addressBatch.add(addresses);
      },
      setRefreshMs: parameters.IpsetsRefreshInterval * 1000,
      routeRefreshMs: parameters.RouteRefreshInterval * 1000,
      statusIntervalMs: parameters.ReportingIntervalSecs * 1000,
      applyDelayMs: parameters.DebugSimulateDataplaneApplyDelay * 1000,
    });
    this.#tables = [...tables, ...encryption.tables];
    const missing = hasNoRecords ? [noRecords(noFlowRecords)] : [];
    this.refused = () => [...missing, ...rules.refused()];
    this.sizes = () => ({
      backend: kernel.rules.backend,
      ...rules.size(),
      routes: [...tables, ...encryption.tables].map((table) => ({
        table: `IPv${table.version}:${table.table}`,
        ...table.size,
      })),
    });
    this.wireguardDevices = () =>
      [4, 6].flatMap((version) => {
        const { isEnabled, interfaceName } = wireguardOf(parameters, version as IpVersion);
        if (!isEnabled) return [];
        using wireguard = kernel.wireguard?.open();
        return wireguard?.get(interfaceName) ?? [];
      });
    const isBegun = () => this.#hasApplied;
    const onChange = () => this.#loop.applySoon();
    const onLoss = () => {
      for (const table of rules.tables) table.queueResync();
      onChange();
    };
    if (rules.watched !== undefined)
      this.#ruleWatches.set("nftables", new RulesetWatch({ ...rules.watched, isBegun, onLoss }));
    if (rules.outlined !== undefined)
      this.#ruleWatches.set("iptables", new LegacyWatch({ tables: rules.outlined, onChange }));
    this.#watch = new HostWatch({
      links: () => kernel.routes.links.list(),
      mtuPattern: parameters.MTUIfacePattern,
      mtu: mtus.host,
      ipvs: facts.ipvs,
      backend: kernel.rules.backend,
      ...(kernel.backendNow === undefined ? {} : { backendNow: kernel.backendNow }),
      onChange: (reason) => options.onHostChange?.(reason),
    });
    this.#interfaces = new InterfaceMonitor({
      kernel: kernel.routes,
      onMessage: (message) => this.#loop.sendInterface(message),
      isExcluded,
    });
  }

  send(message: DataplaneMessage): void {
    this.#loop.send(message);
  }

  ready(): Promise<void> {
    return this.#loop.ready();
  }

  /** For tests of the watchdog. */
  hang(): void {
    this.#loop.hang();
  }

  /** Ends when the signal aborts, leaving everything in the kernel as it is. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const both = AbortSignal.any([signal, stop.signal]);
    const watching = Promise.all([
      this.#follow(both),
      this.#watch.run(both),
      ...[...this.#ruleWatches].map(([name, watch]) =>
        everySecond({ name, check: () => watch.check(), logger: this.#log }, both),
      ),
    ]);
    try {
      await this.#loop.run(both);
    } finally {
      stop.abort();
      await watching;
      for (const part of [this.#interfaces, ...this.#listeners]) part[Symbol.dispose]();
    }
  }

  /** Follows the kernel's events. */
  #follow(signal: AbortSignal): Promise<void> {
    const { kernel, parameters } = this.#options;
    const { namespace, openEvents = (options) => new EventMonitor(options) } = kernel;
    const follower = new EventFollower({
      open: (onFailure) =>
        openEvents({
          subjects: ["links", "routes"],
          ...(namespace === undefined ? {} : { namespace }),
          onEvents: (events) => this.#onEvents(events),
          onFailure,
        }),
      list: () => this.#interfaces.resync(),
      onListed: () => this.#loop.interfacesInSync(),
      logger: this.#log,
      refreshMs: parameters.InterfaceRefreshInterval * 1000,
    });
    return follower.run(signal);
  }

  #onEvents(events: readonly KernelEvent[]): void {
    this.#interfaces.onEvents(events);
    for (const event of events)
      if (event.type === "link") this.#watch.onLink(event.link.name, !event.isGone);
      else if (event.type === "route" && event.isGone) this.#onRouteGone(event.route);
  }

  #onRouteGone(route: Route): void {
    if (this.#tables.some((table) => table.onGone(route))) this.#loop.applySoon();
  }
}
