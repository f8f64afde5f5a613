// Runs the calculation graph: feeds it what the syncer says, and flushes it to the dataplane as often as is good for
// both. A change goes through at once; a storm of them is joined, at most ten flushes in a row and then one per ten
// milliseconds; while the dataplane is busy the graph goes on taking updates and says only the last word on each object.
import type { CalculationGraph, DataplaneDriver, GraphUpdate } from "../calc/index.ts";
import type { SyncerSink, SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import { giveBackMemory } from "../lib/give-back.ts";
import type { HealthReport } from "../lib/health.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { aborted } from "../lib/retry.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import type { GraphMetrics } from "./metrics/graph-metrics.ts";
import type { OwnNodeReporter } from "./status/own-node.ts";
import type { ProgrammedRevisions } from "./status/programmed.ts";
import type { ValidationFilter } from "./validation-filter.ts";

const TOKENS = 10;
const TOKEN_MS = 10;
const HEALTH_MS = 10_000;
const SLOW_FLUSH_MS = 1000;

export interface GraphRunnerOptions {
  readonly graph: CalculationGraph;
  readonly driver: DataplaneDriver;
  readonly filter: ValidationFilter;
  readonly log: Logger;
  readonly health: (report: HealthReport) => void;
  readonly metrics: GraphMetrics;
  /** Hears what comes in and when all that follows from it was said. */
  readonly programmed?: Pick<ProgrammedRevisions, "onUpdates" | "onFlushed">;
  /** Receives all updates and changes of status. */
  readonly ownNode?: Pick<OwnNodeReporter, "onUpdates" | "onStatus">;
  /** The graph itself failed: nothing it says can be trusted any more. */
  readonly onFailure: (error: unknown) => void;
  readonly now?: () => number;
}

export class GraphRunner implements SyncerSink {
  readonly #options: GraphRunnerOptions;
  readonly #now: () => number;
  #status: SyncStatus = "wait-for-ready";
  #hasBeenInSync = false;
  #isDirty = false;
  #isBusy = false;
  readonly #flushes: TokenBucket;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isHung = false;
  #stopped = false;

  constructor(options: GraphRunnerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#flushes = new TokenBucket({ capacity: TOKENS, refillMs: TOKEN_MS, now: this.#now });
  }

  /** Reports that the graph is alive until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    this.#reportHealth();
    const timer = setInterval(() => this.#reportHealth(), HEALTH_MS);
    await aborted(signal);
    clearInterval(timer);
    clearTimeout(this.#timer);
    this.#stopped = true;
  }

  /** For tests of the watchdog: takes nothing more and reports nothing more. */
  hang(): void {
    this.#isHung = true;
  }

  onStatus(status: SyncStatus): void {
    if (this.#isHung) return;
    if (status === this.#status) return;
    this.#options.log.info("the datastore's state changed", { before: this.#status, now: status });
    this.#status = status;
    this.#options.metrics.onStatus(status);
    this.#options.ownNode?.onStatus(status);
    if (status === "in-sync" && !this.#hasBeenInSync) {
      this.#hasBeenInSync = true;
      this.#guarded(() => this.#options.graph.setInSync());
      giveBackMemory(); // the listing, before its consequences
      this.#isDirty = true;
    }
    this.#reportHealth();
    this.#flushSoon();
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    if (this.#isHung) return;
    const { graph, filter, metrics } = this.#options;
    this.#options.programmed?.onUpdates(updates);
    this.#options.ownNode?.onUpdates(updates);
    let started = this.#now();
    for (const given of updates) {
      const update = filter.check(given);
      metrics.onUpdate(update.key);
      this.#guarded(() => graph.update(update as GraphUpdate));
      const ended = this.#now();
      metrics.onUpdateTime((ended - started) / 1000);
      started = ended;
    }
    if (updates.length > 0) this.#isDirty = true;
    this.#flushSoon();
  }

  onUnreadable(path: string, reason: string): void {
    this.#options.filter.reportUnreadable(path, reason);
  }

  /** Before the first complete picture nothing is said: half a picture would only be said twice. */
  #flushSoon(): void {
    if (!this.#isDirty || this.#isBusy || this.#stopped || !this.#hasBeenInSync || this.#timer !== undefined) return;
    const waitMs = this.#flushes.tryTake();
    if (waitMs === 0) return this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#flushSoon();
    }, waitMs);
  }

  #flush(): void {
    const { graph, driver, log, metrics } = this.#options;
    this.#isDirty = false;
    const started = this.#now();
    this.#guarded(() => graph.flush());
    this.#options.programmed?.onFlushed();
    const tookMs = this.#now() - started;
    if (tookMs > SLOW_FLUSH_MS) log.info("a flush took long", { ms: Math.round(tookMs) });
    metrics.onFlush(graph.figures);
    this.#isBusy = true;
    void driver.ready().then(() => {
      this.#isBusy = false;
      this.#flushSoon();
    });
  }

  #reportHealth(): void {
    // An agent that has lost the datastore or Typha still enforces its last view, so it stays ready.
    if (!this.#isHung) this.#options.health({ live: true, ready: this.#hasBeenInSync });
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#options.log.error("the calculation failed", { error: describeError(error) });
      this.#options.onFailure(error);
    }
  }
}
