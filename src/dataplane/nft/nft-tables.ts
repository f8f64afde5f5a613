// Both families' tables kept as wanted: one transaction per round, so that no packet ever sees half a change. Whether
// somebody else wrote to nftables shows in the ruleset's generation, one small question to the kernel.
import { hasErrno, type NftChange, type NftRuleset } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { delay } from "../../lib/retry.ts";
import { type ApplyOutcome, FatalDataplaneError, type Reconciler } from "../manager.ts";
import type { NftPlane } from "./nft-plane.ts";
import { LateRule } from "./prepared-chain.ts";
import type { Refused } from "../rules/refused.ts";
import type { Match } from "../rules/rule.ts";
import { Refusals } from "./refusals.ts";

export interface NftTablesOptions {
  readonly planes: readonly NftPlane[];
  readonly ruleset: NftRuleset;
  readonly logger: Logger;
  /** How often the tables are read in any case; 0 or less: never. */
  readonly refreshMs: number;
  readonly onCommit?: (ok: boolean, changes: number) => void;
  readonly onRead?: (ok: boolean) => void;
  /** When rules that were refused are tried again. */
  readonly retryMs?: number;
  /** The node is whole without these tables: a kernel that refuses them is reported once and asked again later. */
  readonly isOptional?: boolean;
}

const ATTEMPTS = 10;
const ATTEMPTS_BEFORE_ANEW = 5;
/** How often to ask whether somebody else wrote. */
const LOOK_MS = 10_000;
const OVERTAKEN_LIMIT = 3;
/** From so many changes on the kernel is worth not waiting for. */
const MANY_CHANGES = 2000;
/** From so many elements on a transaction is sent by another thread: the kernel takes 3 µs for each. */
const MANY_ELEMENTS = 10_000;
/** What other changes take, as a number of elements: 15 µs for a rule, 50 µs for one set beside 1,000 others. */
const RULE_SIZE = 5;
const SET_SIZE = 20;
const PIECES = 4;
const OPTIONAL_RETRY_MS = 60_000;

export class NftTables implements Reconciler {
  readonly name = "nftables";
  readonly #options: NftTablesOptions;
  readonly #log: Logger;
  #needsRead = true;
  /** The ruleset's generation after our last look or write. */
  #generation: number | undefined;
  #readAt = 0;
  #lookedAt = 0;
  #isRefused = false;
  /** Somebody wrote since our last look; when enough time has passed, we look what. */
  #hasForeignWrite = false;
  readonly #refusals: Refusals;

  constructor(options: NftTablesOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#refusals = new Refusals(options);
  }

  /** What the kernel does not take. */
  refused(): readonly Refused[] {
    return this.#refusals.list();
  }

  /** The ruleset of this generation is as we read or wrote it. */
  isOurs(generation: number): boolean {
    return generation === this.#generation && !this.#hasForeignWrite && !this.#needsRead;
  }

  queueResync(): void {
    this.#needsRead = true;
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    let overtaken = 0;
    this.#refusals.retryWhenDue(performance.now());
    for (let attempt = 0; ; ) {
      try {
        await this.#applyOnce({ isRetry: attempt + overtaken > 0, anew: attempt >= ATTEMPTS_BEFORE_ANEW, overtaken });
        this.#isRefused = false;
        // What stands in may lead to a chain that its manager has to fill first.
        return { againInMs: this.#refusals.committed() ? 0 : LOOK_MS };
      } catch (error) {
        this.#needsRead = true;
        // Somebody wrote between our look and our write: look again at once. That is no fault of anybody.
        if (hasErrno(error, "ERESTART")) {
          overtaken++;
          continue;
        }
        this.#options.onCommit?.(false, 0);
        attempt++;
        if (this.#options.isOptional === true && attempt > 1) return this.#goOnWithout(error);
        // Once it may have been that the kernel did not hold what we thought; refused after a fresh look, it is the rule.
        if (attempt > 1 && this.#refusals.setAside(error)) {
          attempt = 1; // what stands there instead may be refused too; that goes on only as long as something gives way
          continue;
        }
        if (attempt >= ATTEMPTS) throw new FatalDataplaneError("nftables cannot be programmed", { cause: error });
        this.#log.warn("nftables refused the rules; trying again", { error: describeError(error), attempt });
        await delay(2 ** (attempt - 1), signal);
      }
    }
  }

  #goOnWithout(error: unknown): ApplyOutcome {
    const tables = this.#options.planes.map(({ table }) => `${table.family} ${table.name}`).join(", ");
    if (!this.#isRefused)
      this.#log.warn("the kernel does not take this table; going on without it", {
        tables,
        error: describeError(error),
      });
    this.#isRefused = true;
    return { againInMs: OPTIONAL_RETRY_MS };
  }

  async #applyOnce(how: {
    readonly isRetry: boolean;
    readonly anew: boolean;
    readonly overtaken: number;
  }): Promise<void> {
    const { planes, ruleset } = this.#options;
    this.#look();
    if (this.#needsRead) this.#read(how.isRetry);
    if (!how.anew && !planes.some((plane) => plane.hasChanges)) return;
    const parts = this.#parts(how.anew);
    // The generation makes sure that what we compared with is still there. Where somebody writes all the time we would
    // never have our turn: then without it, and the next round looks again.
    const insists = how.overtaken < OVERTAKEN_LIMIT;
    let pending: Promise<void> | undefined;
    for (const changes of parts) {
      const at = insists && this.#generation !== undefined ? { generation: this.#generation } : {};
      if (parts.length === 1 && !isLarge(changes)) ruleset.commit(changes, at);
      else {
        const next = await ruleset.commitAside(changes, at);
        await pending;
        pending = next.send();
        pending.catch(() => {}); // looked at in its turn
      }
      // Ours makes one generation.
      if (this.#generation !== undefined) this.#generation = nextGeneration(this.#generation);
    }
    if (pending !== undefined) await pending;
    for (const changes of parts) this.#options.onCommit?.(true, changes.length);
    if (parts.length > 0) {
      const now = ruleset.generation();
      if (now !== this.#generation) this.#needsRead = this.#generation !== undefined; // somebody else's came after
      this.#generation = now;
    }
    for (const plane of planes) plane.committed();
  }

  /**
   * What is to be written, in transactions: one. Only of large tables that do not exist yet everything but their hooks is
   * written in pieces, each made ready while the kernel works on the one before. No packet sees any of it, and whoever is
   * stopped in between finds it at the next start.
   */
  #parts(anew: boolean): NftChange[][] {
    let unseen: NftChange[] = [];
    let seen: NftChange[] = [];
    for (const plane of this.#options.planes) {
      const isUnseen = plane.isUnseen && !anew;
      const { body, hooks } = plane.changesByEffect({ anew });
      if (isUnseen) unseen = unseen.concat(body);
      else seen = seen.concat(body);
      seen = seen.concat(hooks);
    }
    if (unseen.length < MANY_CHANGES) {
      const all = unseen.concat(seen);
      return all.length === 0 ? [] : [all];
    }
    const size = Math.ceil(unseen.length / PIECES);
    const parts = Array.from({ length: PIECES }, (_, i) => unseen.slice(i * size, (i + 1) * size));
    return [...parts.slice(0, -1), (parts.at(-1) ?? []).concat(seen)];
  }

  /** Notices foreign changes. Our own tables may be untouched by them, but only reading tells. */
  #look(): void {
    const now = performance.now();
    const { refreshMs, ruleset } = this.#options;
    if (refreshMs > 0 && now - this.#readAt >= refreshMs) this.#needsRead = true;
    if (this.#needsRead) return;
    const generation = ruleset.generation();
    if (generation !== this.#generation) this.#hasForeignWrite = true;
    this.#generation = generation;
    // Others write often (services come and go); reading our tables each time would cost more than it finds.
    if (this.#hasForeignWrite && now - this.#lookedAt >= LOOK_MS * 0.9) this.#needsRead = true;
  }

  #read(isRetry: boolean): void {
    const { planes, ruleset, onRead } = this.#options;
    const before = this.#generation;
    this.#generation = ruleset.generation();
    const isUntouched = before === this.#generation && !this.#hasForeignWrite;
    try {
      for (const plane of planes) this.#readPlane(plane, isRetry, isUntouched);
      onRead?.(true);
    } catch (error) {
      onRead?.(false);
      throw error;
    }
    this.#needsRead = false;
    this.#hasForeignWrite = false;
    this.#readAt = this.#lookedAt = performance.now();
  }

  #readPlane(plane: NftPlane, isRetry: boolean, isUntouched: boolean): void {
    const { ruleset, refreshMs } = this.#options;
    const { table } = plane;
    const hadChanges = plane.hasChanges;
    const found = ruleset.tables(table.family).find(({ name }) => name === table.name);
    if (found === undefined) {
      plane.found({ table: "absent", chains: [], rules: [], sets: [], elementsOf: () => [] });
      return this.#tell(plane, hadChanges || isRetry);
    }
    plane.found({
      table: found.isDormant ? "dormant" : "present",
      chains: ruleset.chains(table),
      rules: ruleset.rules(table),
      sets: ruleset.sets(table),
      elementsOf: (set) => ruleset.elements(table, set),
      flowtables: ruleset.flowtables(table),
      options: { isUntouched, trustMs: refreshMs },
    });
    this.#tell(plane, hadChanges || isRetry);
  }

  /** Where nothing was to be written and now something is, it was somebody else. */
  #tell({ table, hasChanges }: NftPlane, isOurDoing: boolean): void {
    if (!isOurDoing && hasChanges && this.#readAt > 0)
      this.#log.warn("somebody changed our nftables rules; repairing", { table: `${table.family} ${table.name}` });
  }
}

/** True if encoding or programming the changes would block the event loop for a long time. */
function isLarge(changes: readonly NftChange[]): boolean {
  let size = 0;
  for (const change of changes) {
    size += sizeOf(change);
    if (size >= MANY_ELEMENTS) return true;
  }
  return false;
}

/** The work of a change, as a number of elements. Those of lists inside rules count too. */
function sizeOf(change: NftChange): number {
  if ("elements" in change) return change.elements.length;
  if (change.op === "addSet" || change.op === "deleteSet") return SET_SIZE;
  if (!(change instanceof LateRule)) return 1;
  return (change.tree.match ?? []).reduce((size, m) => size + listLength(m), RULE_SIZE);
}

function listLength(m: Match): number {
  if (m.kind === "nets") return m.nets.length;
  return m.kind === "ports" ? m.ranges.length : 0;
}

const nextGeneration = (generation: number): number => (generation + 1) >>> 0 || 1;
