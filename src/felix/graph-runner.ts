// Runs the calculation graph: passes the syncer's updates to it and flushes it to the dataplane.
//
// A single change is flushed immediately. Flushes are rate-limited: at most ten in succession, then one per 10 ms. While
// the dataplane is busy, the graph continues to receive updates; later, only the latest message per object is sent.
//
// The calculation of large policies is split into slices. After each slice, what is settled is flushed: otherwise a tenant
// who edits such a policy once a second would delay the pods and policies of all others.
import type { CalculationGraph, DataplaneDriver, GraphUpdate } from "../calc/index.ts";
import type { SyncerSink, SyncerUpdate, SyncStatus, ValidationFilter } from "../datastore/index.ts";
import { collectGarbage } from "../lib/process/collect-garbage.ts";
import type { HealthReport } from "../lib/http/health.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { aborted } from "../lib/retry.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import type { GraphMetrics } from "./metrics/graph-metrics.ts";
import type { OwnNodeReporter } from "./status/own-node.ts";
import type { ProgrammedRevisions } from "./status/programmed.ts";

const MAX_FLUSH_BURST = 10;
const FLUSH_INTERVAL_MS = 10;
const HEALTH_INTERVAL_MS = 10_000;
const SLOW_FLUSH_MS = 1000;
/** Time for which the work before a flush may block the event loop. */
const SETTLE_SLICE_MS = 25;

export interface GraphRunnerOptions {
  readonly graph: CalculationGraph;
  readonly driver: DataplaneDriver;
  readonly filter: ValidationFilter;
  readonly log: Logger;
  readonly health: (report: HealthReport) => void;
  readonly metrics: GraphMetrics;
  /** Receives all updates, and is notified when all resulting messages were sent. */
  readonly programmed?: Pick<ProgrammedRevisions, "onUpdates" | "onFlushed">;
  /** Receives all updates and changes of status. */
  readonly ownNode?: Pick<OwnNodeReporter, "onUpdates" | "onStatus">;
  /** The graph threw an error, so its further output may be wrong. */
  readonly onFailure: (error: unknown) => void;
  readonly now?: () => number;
}

export class GraphRunner implements SyncerSink {
  readonly #options: GraphRunnerOptions;
  readonly #now: () => number;
  #status: SyncStatus = "wait-for-ready";
  #hasBeenInSync = false;
  #isDirty = false;
  /** The dataplane has not processed the last flush. */
  #isBusy = false;
  /** The graph has been flushed completely. Before that, nothing may be flushed. */
  #hasFlushed = false;
  #isSliceScheduled = false;
  readonly #flushes: TokenBucket;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isHung = false;
  #stopped = false;

  constructor(options: GraphRunnerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#flushes = new TokenBucket({ capacity: MAX_FLUSH_BURST, refillMs: FLUSH_INTERVAL_MS, now: this.#now });
  }

  /** Reports that the graph is alive until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    this.#reportHealth();
    const timer = setInterval(() => this.#reportHealth(), HEALTH_INTERVAL_MS);
    await aborted(signal);
    clearInterval(timer);
    clearTimeout(this.#timer);
    this.#stopped = true;
  }

  /** Ignores all updates and stops health reports, to test the watchdog. */
  hang(): void {
    this.#isHung = true;
  }

  onStatus(status: SyncStatus): void {
    if (this.#isHung) return;
    if (status === this.#status) return;
    this.#options.log.info("datastore sync status changed", { from: this.#status, to: status });
    this.#status = status;
    this.#options.metrics.onStatus(status);
    this.#options.ownNode?.onStatus(status);
    if (status === "in-sync" && !this.#hasBeenInSync) {
      this.#hasBeenInSync = true;
      this.#catchFailure(() => this.#options.graph.setInSync());
      collectGarbage(); // frees the lists before the flush allocates its messages
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
    let startMs = this.#now();
    for (const unchecked of updates) {
      const update = filter.check(unchecked);
      metrics.onUpdate(update.key);
      this.#catchFailure(() => graph.update(update as GraphUpdate));
      const endMs = this.#now();
      metrics.onUpdateTime((endMs - startMs) / 1000);
      startMs = endMs;
    }
    if (updates.length > 0) this.#isDirty = true;
    this.#flushSoon();
  }

  onUnreadable(path: string, reason: string): void {
    this.#options.filter.reportUnreadable(path, reason);
  }

  /** Does nothing before the first sync: the messages of an incomplete state would be sent again soon. */
  #flushSoon(): void {
    if (!this.#isDirty || this.#isBusy || this.#stopped || !this.#hasBeenInSync) return;
    if (this.#timer !== undefined || this.#isSliceScheduled) return; // they flush
    const waitMs = this.#flushes.tryTake();
    if (waitMs === 0) return this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#flushSoon();
    }, waitMs);
  }

  #flush(): void {
    const { graph, driver, log, metrics } = this.#options;
    const isSettled = this.#settleSlice();
    if (!isSettled) this.#scheduleSlice();
    if (!isSettled && !this.#hasFlushed) return;
    this.#hasFlushed = true;
    this.#isDirty = !isSettled;
    const startMs = this.#now();
    this.#catchFailure(() => (isSettled ? graph.flush() : graph.flushSettled()));
    this.#options.programmed?.onFlushed((key) => graph.isHeld(key));
    const tookMs = this.#now() - startMs;
    if (tookMs > SLOW_FLUSH_MS) log.info("slow flush of the calculation graph", { ms: Math.round(tookMs) });
    metrics.onFlush(graph.statistics);
    this.#isBusy = true;
    void driver.ready().then(() => {
      this.#isBusy = false;
      this.#flushSoon();
    });
  }

  /** Continues the calculation after other tasks of the event loop, even while the dataplane is busy. */
  #scheduleSlice(): void {
    if (this.#isSliceScheduled) return;
    this.#isSliceScheduled = true;
    setImmediate(() => {
      this.#isSliceScheduled = false;
      if (this.#stopped) return;
      if (!this.#isBusy && this.#timer === undefined) this.#flush();
      else if (!this.#settleSlice()) this.#scheduleSlice();
    });
  }

  /** Returns false if work is left. */
  #settleSlice(): boolean {
    const endMs = this.#now() + SETTLE_SLICE_MS;
    let isSettled = true;
    this.#catchFailure(() => (isSettled = this.#options.graph.settle(() => this.#now() >= endMs)));
    return isSettled;
  }

  #reportHealth(): void {
    // Felix stays ready when it loses the datastore or Typha, because it continues to enforce its last view.
    if (!this.#isHung) this.#options.health({ live: true, ready: this.#hasBeenInSync });
  }

  #catchFailure(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#options.log.error("calculation graph failed", { error: describeError(error) });
      this.#options.onFailure(error);
    }
  }
}
