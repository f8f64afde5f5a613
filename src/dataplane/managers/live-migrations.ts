// Follows the live migration of virtual machines to this node. While a machine is expected, it still runs on another node, and
// no route leads to it here. After it announced itself, its routes have an elevated priority, until the routes of the other
// node are withdrawn; then they have the normal priority.
//
//   settled ──target──► expected ──announced──► arrived
//      ▲                    └──no role──► converging ◄──no role──┘
//      └───────────────time─────────────────┘
import type { WorkloadEndpointId } from "../../calc/index.ts";
import type { Routes } from "../../kernel/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Manager } from "../loop/manager.ts";
import { type ActiveWorkload, type EndpointRegistry, workloadKey } from "./endpoint-registry.ts";

export type MigrationPhase = "settled" | "expected" | "arrived" | "converging";

export interface LiveMigrationsDeps {
  readonly registry: EndpointRegistry;
  /** How long routes keep the elevated priority after the end of the migration. */
  readonly convergenceMs: number;
  /** Reports that the machine behind a link announced itself. */
  readonly watchGratuitousArp?: (link: number, onReceived: () => void) => Disposable;
  /** Returns the elevated routes at start, as keys of `elevatedRoutes`: an earlier run saw the arrival. */
  readonly existingElevatedRoutes: () => ReadonlySet<string>;
  /** Called once per migration when the machine has arrived. */
  readonly onArrival?: (workload: ActiveWorkload) => void;
  /** Requests a round. */
  readonly applySoon: () => void;
  readonly logger: Logger;
  readonly now?: () => number;
}

interface Move {
  readonly key: string;
  readonly id: WorkloadEndpointId;
  phase: MigrationPhase;
  /** When `converging` ends. */
  endsAt: number;
  link?: number;
  listener?: Disposable;
}

export class LiveMigrations implements Manager, Disposable {
  readonly name = "live migrations";
  readonly #deps: LiveMigrationsDeps;
  readonly #dirty: Set<string>;
  readonly #moves = new Map<string, Move>();
  #changed = new Set<string>();
  #isFirst = true;
  readonly #now: () => number;

  constructor(deps: LiveMigrationsDeps) {
    this.#deps = deps;
    this.#dirty = deps.registry.watchWorkloads();
    this.#now = deps.now ?? (() => performance.now());
  }

  phaseOf(interfaceName: string): MigrationPhase {
    return this.#moves.get(interfaceName)?.phase ?? "settled";
  }

  /** Returns the interfaces whose phase changed since the last call. */
  takeChanged(): ReadonlySet<string> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): ApplyOutcome {
    const elevated = this.#isFirst && this.#dirty.size > 0 ? this.#deps.existingElevatedRoutes() : NONE;
    this.#isFirst = false;
    for (const name of this.#dirty) this.#follow(name, elevated);
    this.#dirty.clear();
    let againInMs: number | undefined;
    for (const [name, move] of this.#moves) {
      if (move.phase !== "converging") continue;
      const leftMs = move.endsAt - this.#now();
      if (leftMs <= 0) this.#enter(name, move, "settled");
      else againInMs = Math.min(againInMs ?? leftMs, leftMs);
    }
    return againInMs === undefined ? {} : { againInMs };
  }

  [Symbol.dispose](): void {
    for (const { listener } of this.#moves.values()) listener?.[Symbol.dispose]();
    this.#moves.clear();
  }

  #follow(name: string, elevated: ReadonlySet<string>): void {
    const workload = this.#deps.registry.activeWorkloads.get(name);
    const before = this.#moves.get(name);
    if (workload === undefined || workload.endpoint.state !== "active") {
      if (before !== undefined) this.#enter(name, before, "settled");
      return;
    }
    const key = workloadKey(workload.id);
    if (before !== undefined && before.key !== key) this.#enter(name, before, "settled"); // another machine has the interface now
    // An earlier run may have seen the arrival.
    const link = this.#deps.registry.interfaces.get(name)?.index;
    const { ipv4Nets, ipv6Nets, liveMigrationRole: role } = workload.endpoint;
    const wasElevated =
      elevated.size > 0 && [...ipv4Nets, ...ipv6Nets].some((net) => elevated.has(routeKey(link, net)));
    const present = this.phaseOf(name);
    const next = step(wasElevated ? "arrived" : present, role);
    if (next === present) return this.#listen(name);
    const move = this.#moves.get(name) ?? { key, id: workload.id, phase: present, endsAt: 0 };
    this.#moves.set(name, move);
    this.#enter(name, move, next);
    this.#listen(name);
    if (present === "expected" && next === "converging") this.#deps.onArrival?.(workload); // it never announced itself
  }

  #enter(name: string, move: Move, phase: MigrationPhase): void {
    if (move.phase !== phase) {
      this.#deps.logger.info("live migration entered another phase", {
        interface: name,
        workload: move.id.workload,
        phase,
      });
      this.#changed.add(name);
    }
    move.phase = phase;
    move.endsAt = this.#now() + this.#deps.convergenceMs;
    if (phase !== "expected") {
      move.listener?.[Symbol.dispose]();
      delete move.listener;
    }
    if (phase === "settled") this.#moves.delete(name);
  }

  /** Starts to listen for an expected machine as soon as its interface exists. */
  #listen(name: string): void {
    const move = this.#moves.get(name);
    const { watchGratuitousArp, registry, logger } = this.#deps;
    const link = registry.interfaces.get(name)?.index;
    if (move?.phase !== "expected" || watchGratuitousArp === undefined || link === undefined) return;
    if (move.listener !== undefined && move.link === link) return;
    move.listener?.[Symbol.dispose]();
    move.link = link;
    try {
      move.listener = watchGratuitousArp(link, () => this.#onAnnounced(name, move));
    } catch (error) {
      delete move.listener;
      logger.warn(
        "listening for the arrival of a migrating workload failed; its routes are written when the migration ends",
        {
          interface: name,
          error: describeError(error),
        },
      );
    }
  }

  #onAnnounced(name: string, move: Move): void {
    if (move.phase !== "expected" || this.#moves.get(name) !== move) return;
    this.#enter(name, move, "arrived");
    const workload = this.#deps.registry.activeWorkloads.get(name);
    if (workload !== undefined) this.#deps.onArrival?.(workload);
    this.#deps.applySoon();
  }
}

function step(phase: MigrationPhase, role: "none" | "source" | "target"): MigrationPhase {
  if (role === "source") return "settled"; // it still runs here
  if (role === "target") return phase === "settled" ? "expected" : phase === "converging" ? "arrived" : phase;
  return phase === "settled" ? "settled" : "converging";
}

const NONE: ReadonlySet<string> = new Set();
const routeKey = (link: number | undefined, destination: Cidr): string => `${link} ${destination}`;

/** Returns the routes with the elevated priority, by link and destination; none if it equals the normal priority. */
export function elevatedRoutes(
  routes: Pick<Routes, "list">,
  table: number,
  elevated: Readonly<Record<IpVersion, number>>,
  normal: Readonly<Record<IpVersion, number>>,
): ReadonlySet<string> {
  const found = new Set<string>();
  for (const version of [4, 6] as const)
    if (elevated[version] !== normal[version])
      for (const { link, destination, priority } of routes.list({ version, table }))
        if (priority === elevated[version]) found.add(routeKey(link, destination));
  return found;
}
