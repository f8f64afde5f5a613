// The whole Linux dataplane of one node: receives messages from the calculation graph and writes them to the kernel.
//
//   kernel events ─► InterfaceMonitor ─┐
//                                      ├─► ApplyLoop ─► managers ─► sets, rule tables, links, routes ─► kernel
//   calc ─► DataplaneMessage ──────────┘                   └─► endpoint status, other reports ─► Felix
//
// wiring.ts builds the parts.
import type { DataplaneDriver, DataplaneMessage, DataplaneReport } from "../calc/index.ts";
import { EventMonitor, type KernelEvent, type Route, type WireguardDevice } from "../kernel/index.ts";
import type { HealthReport } from "../lib/http/health.ts";
import type { Logger } from "../lib/log/log.ts";
import { detectMtus } from "./host/mtu.ts";
import { prepareHost } from "./host/prepare-host.ts";
import { EventFollower } from "./interfaces/event-follower.ts";
import { ApplyLoop, type ApplyLoopOptions } from "./loop/apply-loop.ts";
import { everySecond } from "./loop/every-second.ts";
import { type DataplaneSizes, DataplaneStats } from "./loop/stats.ts";
import { summarizeRejected, type RejectedItem } from "./rules/fallback/rejection-log.ts";
import { wireguardOf } from "./wireguard/encryption.ts";
import {
  type RouteParts,
  type RuleParts,
  type Watches,
  wireRoutes,
  wireRules,
  wireWatches,
  type WiringInputs,
} from "./wiring.ts";

export interface LinuxDataplaneOptions extends Omit<WiringInputs, "stats" | "mtus"> {
  readonly report: (report: DataplaneReport) => void;
  readonly health?: (report: HealthReport) => void;
  readonly roundMs?: number;
  /** The file in which the CNI plugin finds the MTU for pods. */
  readonly mtuFile?: string;
  readonly onApplied?: NonNullable<ApplyLoopOptions["onApplied"]>;
}

export class LinuxDataplane implements DataplaneDriver {
  readonly #options: LinuxDataplaneOptions;
  readonly #log: Logger;
  readonly #rules: RuleParts;
  readonly #routes: RouteParts;
  readonly #loop: ApplyLoop;
  readonly #watches: Watches;
  readonly stats = new DataplaneStats();

  constructor(options: LinuxDataplaneOptions) {
    this.#options = options;
    this.#log = options.logger;
    const { parameters, facts, kernel, logger, mtuFile } = options;
    const mtus = detectMtus(kernel.routes.links.list(), parameters, facts);
    const inputs: WiringInputs = { ...options, stats: this.stats, mtus };
    this.#rules = wireRules(inputs);
    this.#routes = wireRoutes(inputs, this.#rules, () => this.#loop.applySoon());
    prepareHost({
      parameters,
      facts,
      kernel,
      podMtu: mtus.pod,
      logger,
      mtuFile,
    });
    this.#loop = new ApplyLoop({
      parts: {
        managers: [...this.#rules.managers, ...this.#routes.managers],
        sets: this.#rules.sets,
        tables: this.#rules.tables,
        links: this.#routes.links,
        routes: this.#routes.reconcilers,
      },
      logger,
      report: options.report,
      health: options.health,
      healthDetail: () => summarizeRejected(this.rejected()),
      onApplied: options.onApplied,
      roundMs: options.roundMs,
      onBatch: ({ interfaces, addresses }) => {
        if (interfaces > 0) this.stats.interfaceBatch.add(interfaces);
        if (addresses > 0) this.stats.addressBatch.add(addresses);
      },
      setRefreshMs: parameters.IpsetsRefreshInterval * 1000,
      routeRefreshMs: parameters.RouteRefreshInterval * 1000,
      statusIntervalMs: parameters.ReportingIntervalSecs * 1000,
      applyDelayMs: parameters.DebugSimulateDataplaneApplyDelay * 1000,
    });
    this.#watches = wireWatches(inputs, this.#rules, this.#loop);
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

  /** Runs until the signal aborts. Everything in the kernel stays as it is then. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const both = AbortSignal.any([signal, stop.signal]);
    const { host, rules, interfaces } = this.#watches;
    const watching = Promise.all([
      this.#followEvents(both),
      host.run(both),
      ...[...rules].map(([name, watch]) => everySecond({ name, check: () => watch.check(), logger: this.#log }, both)),
    ]);
    try {
      await this.#loop.run(both);
    } finally {
      stop.abort();
      await watching;
      for (const part of [interfaces, ...this.#routes.disposables]) part[Symbol.dispose]();
    }
  }

  #followEvents(signal: AbortSignal): Promise<void> {
    const { kernel, parameters } = this.#options;
    const { namespace, openEvents = (options) => new EventMonitor(options) } = kernel;
    const follower = new EventFollower({
      open: (onFailure) =>
        openEvents({
          subjects: ["links", "routes"],
          namespace,
          onEvents: (events) => this.#onEvents(events),
          onFailure,
        }),
      list: () => this.#watches.interfaces.resync(),
      onListed: () => this.#loop.interfacesInSync(),
      logger: this.#log,
      refreshMs: parameters.InterfaceRefreshInterval * 1000,
    });
    return follower.run(signal);
  }

  #onEvents(events: readonly KernelEvent[]): void {
    this.#watches.interfaces.onEvents(events);
    for (const event of events)
      if (event.type === "link") this.#watches.host.onLink(event.link.name, !event.isGone);
      else if (event.type === "route" && event.isGone) this.#onRouteDeleted(event.route);
  }

  #onRouteDeleted(route: Route): void {
    if (this.#routes.tables.some((table) => table.onRouteDeleted(route))) this.#loop.applySoon();
  }

  /** The rules, sets and features that the kernel rejects, and what is programmed instead. */
  rejected(): readonly RejectedItem[] {
    return this.#rules.rejected();
  }

  /** The number of chains, rules, sets and routes, for the metrics. */
  sizes(): DataplaneSizes {
    return {
      backend: this.#options.kernel.rules.backend,
      ...this.#rules.size(),
      routes: this.#routes.tables.map((table) => ({ table: `IPv${table.version}:${table.table}`, ...table.size })),
    };
  }

  /** The WireGuard devices of this node with their peers, read from the kernel. */
  wireguardDevices(): readonly WireguardDevice[] {
    const { parameters, kernel } = this.#options;
    return ([4, 6] as const).flatMap((version) => {
      const { isEnabled, interfaceName } = wireguardOf(parameters, version);
      if (!isEnabled) return [];
      using wireguard = kernel.wireguard?.open();
      return wireguard?.get(interfaceName) ?? [];
    });
  }
}
