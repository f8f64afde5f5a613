// Machines on their way between nodes. While one is expected here nothing leads to it, for it still runs elsewhere; once
// it says it is here its routes are better than those of the node it left, until everybody has heard; then they are as
// all others.
//
//   settled ──target──► expected ──announced──► arrived
//      ▲                    └──no role──► converging ◄──no role──┘
//      └───────────────time─────────────────┘
import type { WorkloadEndpointId } from "../../calc/index.ts";
import type { Routes } from "../../kernel/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Manager } from "../manager.ts";
import { type ActiveWorkload, type EndpointRegistry, workloadKey } from "./endpoint-registry.ts";

export type MigrationPhase = "settled" | "expected" | "arrived" | "converging";

export interface LiveMigrationsDeps {
  readonly registry: EndpointRegistry;
  /** How long routes stay better after the move is over. */
  readonly convergenceMs: number;
  /** Hears that the machine at the end of a link is there. */
  readonly listen?: (link: number, onHeard: () => void) => Disposable;
  /** Better routes the kernel has when we begin, as `betterRoutes` names them: an agent before us saw the arrival. */
  readonly leftRoutes: () => ReadonlySet<string>;
  /** A machine is here now: once per move. */
  readonly onArrival?: (workload: ActiveWorkload) => void;
  /** What follows is to be written soon. */
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

  /** Interfaces whose phase changed since the last call. */
  takeChanged(): ReadonlySet<string> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  onUpdate(): void {} // the registry remembers

  apply(): ApplyOutcome {
    const left = this.#isFirst && this.#dirty.size > 0 ? this.#deps.leftRoutes() : NONE;
    this.#isFirst = false;
    for (const name of this.#dirty) this.#follow(name, left);
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

  #follow(name: string, left: ReadonlySet<string>): void {
    const workload = this.#deps.registry.activeWorkloads.get(name);
    const before = this.#moves.get(name);
    if (workload === undefined || workload.endpoint.state !== "active") {
      if (before !== undefined) this.#enter(name, before, "settled");
      return;
    }
    const key = workloadKey(workload.id);
    if (before !== undefined && before.key !== key) this.#enter(name, before, "settled"); // another machine
    // Somebody may have seen it arrive before we were started.
    const link = this.#deps.registry.interfaces.get(name)?.index;
    const { ipv4Nets, ipv6Nets, liveMigrationRole: role } = workload.endpoint;
    const wasBetter = left.size > 0 && [...ipv4Nets, ...ipv6Nets].some((net) => left.has(routeName(link, net)));
    const present = this.phaseOf(name);
    const next = step(wasBetter ? "arrived" : present, role);
    if (next === present) return this.#listen(name);
    const move = this.#moves.get(name) ?? { key, id: workload.id, phase: present, endsAt: 0 };
    this.#moves.set(name, move);
    this.#enter(name, move, next);
    this.#listen(name);
    if (present === "expected" && next === "converging") this.#deps.onArrival?.(workload); // it never said so
  }

  #enter(name: string, move: Move, phase: MigrationPhase): void {
    if (move.phase !== phase) {
      this.#deps.logger.info("a migrating workload's state changed", {
        interface: name,
        workload: move.id.workload,
        state: phase,
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

  /** Opens the ear of an expected machine as soon as its interface is there. */
  #listen(name: string): void {
    const move = this.#moves.get(name);
    const { listen, registry, logger } = this.#deps;
    const link = registry.interfaces.get(name)?.index;
    if (move?.phase !== "expected" || listen === undefined || link === undefined) return;
    if (move.listener !== undefined && move.link === link) return;
    move.listener?.[Symbol.dispose]();
    move.link = link;
    try {
      move.listener = listen(link, () => this.#heard(name, move));
    } catch (error) {
      delete move.listener;
      logger.warn("cannot listen for the arrival of a migrating workload; its routes come when the move is over", {
        interface: name,
        error: describeError(error),
      });
    }
  }

  #heard(name: string, move: Move): void {
    if (move.phase !== "expected" || this.#moves.get(name) !== move) return;
    this.#enter(name, move, "arrived");
    const workload = this.#deps.registry.activeWorkloads.get(name);
    if (workload !== undefined) this.#deps.onArrival?.(workload);
    this.#deps.applySoon();
  }
}

function step(phase: MigrationPhase, role: "none" | "source" | "target"): MigrationPhase {
  if (role === "source") return "settled"; // it runs here, and will leave
  if (role === "target") return phase === "settled" ? "expected" : phase === "converging" ? "arrived" : phase;
  return phase === "settled" ? "settled" : "converging";
}

const NONE: ReadonlySet<string> = new Set();
const routeName = (link: number | undefined, destination: Cidr): string => `${link} ${destination}`;

/** The routes with the better priority, by link and destination; none where it is the same as all others'. */
export function betterRoutes(
  routes: Pick<Routes, "list">,
  table: number,
  better: Readonly<Record<IpVersion, number>>,
  normal: Readonly<Record<IpVersion, number>>,
): ReadonlySet<string> {
  const found = new Set<string>();
  for (const version of [4, 6] as const)
    if (better[version] !== normal[version])
      for (const { link, destination, priority } of routes.list({ version, table }))
        if (priority === better[version]) found.add(routeName(link, destination));
  return found;
}
