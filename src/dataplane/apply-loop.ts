// The one thread that writes: messages in, kernel state out.
//
//   calc messages ─┐
//   interfaces ────┼► queue ─► managers remember ─► a round writes (apply-round.ts) ─► reports
//   timers ────────┘
//
// Nothing is written before both the datastore and the interfaces are in sync: the first round compares complete
// desired state with the kernel, which is what makes a restart invisible to traffic.
import type { DataplaneDriver, DataplaneMessage, DataplaneReport } from "../calc/index.ts";
import { giveBackMemory } from "../lib/give-back.ts";
import type { HealthReport } from "../lib/health.ts";
import type { Logger } from "../lib/log.ts";
import { aborted, delay, nextTurn } from "../lib/retry.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import { ApplyRound, type RoundParts } from "./apply-round.ts";
import type { InterfaceMessage, ManagerMessage } from "./manager.ts";

export interface AppliedRound {
  readonly seconds: number;
  /** Everything was written. */
  readonly ok: boolean;
  readonly isFirst: boolean;
  /** How many of the messages sent to us this round and all before it took. */
  readonly messages: number;
}

export interface ApplyLoopOptions {
  readonly parts: RoundParts;
  readonly logger: Logger;
  readonly report: (report: DataplaneReport) => void;
  readonly health?: (report: HealthReport) => void;
  /** What a probe's reader should know although all is well; empty when nothing. */
  readonly healthDetail?: () => string;
  /** 0 or less: never. */
  readonly setRefreshMs: number;
  readonly routeRefreshMs: number;
  readonly statusIntervalMs?: number;
  readonly onApplied?: (round: AppliedRound) => void;
  /** What was taken from the queue together. */
  readonly onBatch?: (batch: { readonly interfaces: number; readonly addresses: number }) => void;
  /** One round more may begin after this time; a tenth of a second unless told. */
  readonly roundMs?: number;
  /** How soon a failed round is tried again. */
  readonly retryMs?: number;
  readonly random?: () => number;
  /** For tests of what watches us: how long every round waits before it begins. */
  readonly applyDelayMs?: number;
}

const LEAST_WATCHDOG_SECONDS = 20;
/** Without a report for this long the loop counts as stuck. */
export const watchdogMs = (configuredSeconds: number): number =>
  Math.max(LEAST_WATCHDOG_SECONDS, configuredSeconds) * 1000;

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
  readonly #startedAt = performance.now();
  #wake: () => void = () => {};
  #waiting: (() => void)[] = [];
  #isDatastoreInSync = false;
  #areInterfacesInSync = false;
  #hasApplied = false;
  #needsApply = true;
  /** When to apply again although nothing came in. */
  #applyAt = Number.POSITIVE_INFINITY;
  #setResyncAt: number;
  #routeResyncAt: number;
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
    this.#setResyncAt = this.#nextResync(options.setRefreshMs);
    this.#routeResyncAt = this.#nextResync(options.routeRefreshMs);
  }

  /** From the calculation graph. */
  send(message: DataplaneMessage): void {
    this.#queue.push(message);
    this.#wake();
  }

  ready(): Promise<void> {
    if (this.#queue.length < QUEUE_LIMIT) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  sendInterface(message: InterfaceMessage): void {
    this.#queue.push(message);
    this.#wake();
  }

  /** Something that no message tells is to be written. */
  applySoon(): void {
    this.#needsApply = true;
    this.#wake();
  }

  /** For tests of the watchdog: takes nothing more, writes nothing more and reports nothing more. */
  hang(): void {
    this.#isHung = true;
    this.#wake();
  }

  /** The first complete list of interfaces was sent. */
  interfacesInSync(): void {
    this.#areInterfacesInSync = true;
    this.#needsApply = true;
    this.#wake();
  }

  /** Ends when the signal aborts; throws when the kernel cannot be brought to the desired state. */
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
          if (now >= this.#applyAt) this.#needsApply = true;
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
          waitMs = Math.min(waitMs, Math.min(this.#applyAt, this.#setResyncAt, this.#routeResyncAt) - now);
        }
        this.#reportHealth();
        // Messages are taken while rounds must wait: remembering costs nothing and makes room for the sender.
        if (this.#queue.length === 0) await this.#sleep(waitMs, signal);
        else await nextTurn();
      }
    } catch (error) {
      if (!signal.aborted) throw error; // what was under way when we were told to end has ended with us
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** A first message and up to a hundred more that are already there. */
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
    if (this.#queue.length < QUEUE_LIMIT) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async #apply(signal: AbortSignal): Promise<void> {
    const { applyDelayMs = 0, retryMs = RETRY_MS } = this.#options;
    if (applyDelayMs > 0) await delay(applyDelayMs, signal);
    const started = performance.now();
    const messages = this.#messages;
    this.#needsApply = false;
    const round = new ApplyRound(this.#parts, { logger: this.#log, onProgress: () => this.#reportHealth() });
    const { failures, againAt } = await round.run(signal);
    this.#applyAt = failures > 0 ? Math.min(againAt, performance.now() + retryMs) : againAt;
    if (failures === 0 && this.#failures > 0) this.#log.info("the dataplane is whole again");
    this.#failures = failures;
    for (const manager of this.#parts.managers)
      for (const report of manager.reports?.() ?? []) this.#options.report(report);
    const isFirst = !this.#hasApplied;
    this.#hasApplied = true;
    if (isFirst) {
      giveBackMemory();
      // Statuses and late interfaces make some more; once they are gone too, the collector finds nothing to do for long.
      setTimeout(giveBackMemory, SETTLED_MS).unref();
      this.#options.report({ type: "dataplaneInSync" });
      this.#log.info("first round applied", { seconds: this.#seconds(), ok: failures === 0 });
    }
    const seconds = (performance.now() - started) / 1000;
    this.#options.onApplied?.({ seconds, ok: failures === 0, isFirst, messages });
  }

  #queueResyncs(now: number): void {
    if (now >= this.#setResyncAt) {
      for (const part of this.#parts.sets) part.queueResync();
      this.#setResyncAt = this.#nextResync(this.#options.setRefreshMs);
      this.#needsApply = true;
    }
    if (now >= this.#routeResyncAt) {
      for (const part of [...this.#parts.links, ...this.#parts.routes]) part.queueResync();
      this.#routeResyncAt = this.#nextResync(this.#options.routeRefreshMs);
      this.#needsApply = true;
    }
  }

  /** Up to a tenth later than the interval, so that nodes do not march in step. */
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
    const uptimeSeconds = (performance.now() - this.#startedAt) / 1000;
    this.#options.report({ type: "processStatus", time: new Date().toISOString(), uptimeSeconds });
  }

  #seconds(): number {
    return Math.round(performance.now() - this.#startedAt) / 1000;
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
