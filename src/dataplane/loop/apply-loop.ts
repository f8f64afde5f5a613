// Receives messages and writes their effects to the kernel, in rounds. Nothing else writes to the kernel.
//
//   calc messages ─┐
//   interfaces ────┼► queue ─► managers store them ─► a round writes (apply-round.ts) ─► reports
//   timers ────────┘
//
// Nothing is written before both the datastore and the interfaces are in sync. The first round therefore compares the
// complete desired state with the kernel, and a restart does not affect traffic.
import type { DataplaneDriver, DataplaneMessage, DataplaneReport } from "../../calc/index.ts";
import { collectGarbage } from "../../lib/process/collect-garbage.ts";
import type { HealthReport } from "../../lib/http/health.ts";
import type { Logger } from "../../lib/log/log.ts";
import { aborted, delay, yieldToEventLoop } from "../../lib/retry.ts";
import { TokenBucket } from "../../lib/token-bucket.ts";
import { ApplyRound, type RoundParts } from "./apply-round.ts";
import type { InterfaceMessage, ManagerMessage } from "./manager.ts";

export interface AppliedRound {
  readonly seconds: number;
  /** True if everything was written. */
  readonly ok: boolean;
  readonly isFirst: boolean;
  /** Number of datastore messages that this round and all rounds before it have processed. */
  readonly messages: number;
}

export interface ApplyLoopOptions {
  readonly parts: RoundParts;
  readonly logger: Logger;
  readonly report: (report: DataplaneReport) => void;
  readonly health?: (report: HealthReport) => void;
  /** Returns a text for the reply of the readiness probe; may be empty. */
  readonly healthDetail?: () => string;
  /** 0 or less: never. */
  readonly setRefreshMs: number;
  readonly routeRefreshMs: number;
  readonly statusIntervalMs?: number;
  readonly onApplied?: (round: AppliedRound) => void;
  /** Called for each batch of messages from the queue. */
  readonly onBatch?: (batch: { readonly interfaces: number; readonly addresses: number }) => void;
  /** Minimum average interval between rounds; by default 100 ms. */
  readonly roundMs?: number;
  /** Delay before a failed round is retried. */
  readonly retryMs?: number;
  readonly random?: () => number;
  /** For tests of the watchdog: a delay before every round. */
  readonly applyDelayMs?: number;
}

const MIN_WATCHDOG_SECONDS = 20;
/** If the loop sends no health report for this long, it counts as stuck. */
export const watchdogMs = (configuredSeconds: number): number =>
  Math.max(MIN_WATCHDOG_SECONDS, configuredSeconds) * 1000;

const QUEUE_LIMIT = 100;
const BATCH_LIMIT = 100;
const ROUND_MS = 100;
const RETRY_MS = 10_000;
const HEALTH_MS = 10_000;
const FIRST_STATUS_MS = 10_000;
const SETTLED_MS = 2000;

export class ApplyLoop implements DataplaneDriver {
  readonly #options: ApplyLoopOptions;
  readonly #parts: RoundParts;
  readonly #log: Logger;
  readonly #throttle: TokenBucket;
  readonly #queue: ManagerMessage[] = [];
  readonly #startedAtMs = performance.now();
  #wake: () => void = () => {};
  #readyWaiters: (() => void)[] = [];
  #isDatastoreInSync = false;
  #areInterfacesInSync = false;
  #hasApplied = false;
  #needsApply = true;
  /** When to apply again even if no message arrives. */
  #applyAtMs = Number.POSITIVE_INFINITY;
  #setResyncAtMs: number;
  #routeResyncAtMs: number;
  #failures = 0;
  #messages = 0;
  #isHung = false;

  constructor(options: ApplyLoopOptions) {
    this.#options = options;
    this.#parts = options.parts;
    this.#log = options.logger;
    const random = options.random ?? Math.random;
    this.#throttle = new TokenBucket({
      capacity: 10,
      initial: 1,
      refillMs: (options.roundMs ?? ROUND_MS) * (1 + 0.1 * random()),
    });
    this.#setResyncAtMs = this.#nextResync(options.setRefreshMs);
    this.#routeResyncAtMs = this.#nextResync(options.routeRefreshMs);
  }

  /** Queues a message of the calculation graph. */
  send(message: DataplaneMessage): void {
    this.#queue.push(message);
    this.#wake();
  }

  /** True after the first round, even if parts of it failed. */
  get hasApplied(): boolean {
    return this.#hasApplied;
  }

  ready(): Promise<void> {
    if (this.#queue.length < QUEUE_LIMIT) return Promise.resolve();
    return new Promise((resolve) => this.#readyWaiters.push(resolve));
  }

  sendInterface(message: InterfaceMessage): void {
    this.#queue.push(message);
    this.#wake();
  }

  /** Requests a round although no message arrived. */
  applySoon(): void {
    this.#needsApply = true;
    this.#wake();
  }

  /** For tests of the watchdog: stops processing, writing and reporting. */
  hang(): void {
    this.#isHung = true;
    this.#wake();
  }

  /** Must be called after the first complete list of interfaces was sent. */
  interfacesInSync(): void {
    this.#areInterfacesInSync = true;
    this.#needsApply = true;
    this.#wake();
  }

  /** Runs until the signal aborts. @throws FatalDataplaneError if the kernel cannot be programmed */
  async run(signal: AbortSignal): Promise<void> {
    const onAbort = () => this.#wake();
    signal.addEventListener("abort", onAbort);
    const statusMs = this.#options.statusIntervalMs ?? 0;
    let statusAt = statusMs > 0 ? performance.now() + FIRST_STATUS_MS : Number.POSITIVE_INFINITY;
    this.#reportHealth();
    try {
      while (!signal.aborted) {
        if (this.#isHung) return await aborted(signal);
        this.#takeBatch();
        const now = performance.now();
        if (now >= statusAt) {
          this.#reportProcess();
          statusAt = now + statusMs;
        }
        let waitMs = Math.min(HEALTH_MS, statusAt - now);
        if (this.#isDatastoreInSync && this.#areInterfacesInSync) {
          if (now >= this.#applyAtMs) this.#needsApply = true;
          this.#queueResyncs(now);
          if (this.#needsApply) {
            const throttledMs = this.#throttle.tryTake();
            if (throttledMs === 0) {
              await this.#apply(signal);
              this.#reportHealth();
              continue;
            }
            waitMs = Math.min(waitMs, throttledMs);
          }
          waitMs = Math.min(waitMs, Math.min(this.#applyAtMs, this.#setResyncAtMs, this.#routeResyncAtMs) - now);
        }
        this.#reportHealth();
        // Messages are processed even if a round must wait, so that the sender can continue.
        if (this.#queue.length === 0) await this.#sleep(waitMs, signal);
        else await yieldToEventLoop();
      }
    } catch (error) {
      if (!signal.aborted) throw error; // an operation was interrupted by the abort
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Processes up to 101 queued messages. */
  #takeBatch(): void {
    const batch = this.#queue.splice(0, BATCH_LIMIT + 1);
    if (batch.length === 0) return;
    let interfaces = 0;
    let addresses = 0;
    for (const message of batch) {
      if (message.type === "interfaceState") interfaces++;
      else if (message.type === "interfaceAddresses") addresses++;
      else this.#messages++;
      if (message.type === "inSync") {
        this.#isDatastoreInSync = true;
        this.#log.info("datastore is in sync", { seconds: this.#seconds() });
      }
      for (const manager of this.#parts.managers) manager.onUpdate(message);
    }
    if (interfaces + addresses > 0) this.#options.onBatch?.({ interfaces, addresses });
    this.#needsApply = true;
    if (this.#queue.length < QUEUE_LIMIT) for (const resolve of this.#readyWaiters.splice(0)) resolve();
  }

  async #apply(signal: AbortSignal): Promise<void> {
    const { applyDelayMs = 0, retryMs = RETRY_MS } = this.#options;
    if (applyDelayMs > 0) await delay(applyDelayMs, signal);
    const started = performance.now();
    const messages = this.#messages;
    this.#needsApply = false;
    const round = new ApplyRound(this.#parts, { logger: this.#log, onProgress: () => this.#reportHealth() });
    const { failures, applyAgainAtMs } = await round.run(signal);
    this.#applyAtMs = failures > 0 ? Math.min(applyAgainAtMs, performance.now() + retryMs) : applyAgainAtMs;
    if (failures === 0 && this.#failures > 0) this.#log.info("all parts of the dataplane are programmed again");
    this.#failures = failures;
    for (const manager of this.#parts.managers)
      for (const report of manager.reports?.() ?? []) this.#options.report(report);
    const isFirst = !this.#hasApplied;
    this.#hasApplied = true;
    if (isFirst) {
      collectGarbage();
      // Status reports and late interfaces allocate some more memory; collect it as well.
      setTimeout(collectGarbage, SETTLED_MS).unref();
      this.#log.info("first round applied", { seconds: this.#seconds(), ok: failures === 0 });
    }
    const seconds = (performance.now() - started) / 1000;
    this.#options.onApplied?.({ seconds, ok: failures === 0, isFirst, messages });
    // After onApplied, which records for the next boot that Felix manages the guard table: a program that sees the report may
    // attach pods, and Felix may be killed at any time.
    if (isFirst) this.#options.report({ type: "dataplaneInSync" });
  }

  #queueResyncs(now: number): void {
    if (now >= this.#setResyncAtMs) {
      for (const part of this.#parts.sets) part.queueResync();
      this.#setResyncAtMs = this.#nextResync(this.#options.setRefreshMs);
      this.#needsApply = true;
    }
    if (now >= this.#routeResyncAtMs) {
      for (const part of [...this.#parts.links, ...this.#parts.routes]) part.queueResync();
      this.#routeResyncAtMs = this.#nextResync(this.#options.routeRefreshMs);
      this.#needsApply = true;
    }
  }

  /** Adds up to 10 % to the interval, so that nodes do not resync at the same time. */
  #nextResync(intervalMs: number): number {
    if (intervalMs <= 0) return Number.POSITIVE_INFINITY;
    return performance.now() + intervalMs * (1 + 0.1 * (this.#options.random ?? Math.random)());
  }

  #reportHealth(): void {
    if (this.#isHung) return;
    const { health, healthDetail = () => "" } = this.#options;
    health?.({ live: true, ready: this.#hasApplied && this.#areInterfacesInSync, detail: healthDetail() });
  }

  #reportProcess(): void {
    const uptimeSeconds = (performance.now() - this.#startedAtMs) / 1000;
    this.#options.report({ type: "processStatus", time: new Date().toISOString(), uptimeSeconds });
  }

  #seconds(): number {
    return Math.round(performance.now() - this.#startedAtMs) / 1000;
  }

  #sleep(ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#wake = () => {};
        resolve();
      };
      const timer = setTimeout(done, Math.max(0, Math.min(ms, HEALTH_MS)));
      this.#wake = done;
    });
  }
}
