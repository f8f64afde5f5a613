// Writes the status of endpoints to the datastore. Changes are queued and written sequentially, with a pause after each
// write, to limit the load on the datastore. After the dataplane's first round, and periodically later, the stored statuses
// of this host are compared with the desired ones.
import type { DataplaneReport } from "../../calc/index.ts";
import { type Datastore, NotFound, Unsupported } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { pause } from "../../lib/retry.ts";
import { type EndpointStatus, type HostEndpointStatusKey, keyPath, type WorkloadStatusKey } from "../../model/index.ts";

type StatusKey = WorkloadStatusKey | HostEndpointStatusKey;
/** Interval of the comparison, as a multiple of the delay between writes. */
const RESYNC_INTERVAL_DELAYS = 180;
const JITTER = 0.1;

export interface EndpointStatusOptions {
  readonly store: Datastore;
  readonly host: string;
  /** `no-region` or `region-<name>`. */
  readonly region: string;
  readonly delayMs: number;
  readonly log: Logger;
  readonly random?: () => number;
}

export class EndpointStatusReporter {
  readonly #options: EndpointStatusOptions;
  readonly #desired = new Map<string, { readonly key: StatusKey; readonly status: EndpointStatus["status"] }>();
  /** Keys to write, in the order of their changes. */
  readonly #queue = new Map<string, StatusKey>();
  #wake: () => void = () => {};
  #isInSync = false;

  constructor(options: EndpointStatusOptions) {
    this.#options = options;
  }

  onReport(report: DataplaneReport): void {
    const { host, region } = this.#options;
    switch (report.type) {
      case "workloadEndpointStatus":
        return this.#set({ type: "workloadStatus", region, host, ...report.id }, report.status);
      case "workloadEndpointStatusRemove":
        return this.#set({ type: "workloadStatus", region, host, ...report.id }, undefined);
      case "hostEndpointStatus":
        return this.#set({ type: "hostEndpointStatus", host, endpoint: report.endpointId }, report.status);
      case "hostEndpointStatusRemove":
        return this.#set({ type: "hostEndpointStatus", host, endpoint: report.endpointId }, undefined);
      case "dataplaneInSync":
        this.#isInSync = true;
        return this.#wake();
      default:
        return;
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    const { delayMs, random = Math.random, log } = this.#options;
    let resyncAtMs = 0;
    while (!signal.aborted) {
      if (this.#isInSync && performance.now() >= resyncAtMs) {
        resyncAtMs = performance.now() + RESYNC_INTERVAL_DELAYS * delayMs;
        await this.#resync(signal).catch((error: unknown) =>
          log.debug("could not compare endpoint statuses", { error: describeError(error) }),
        );
      }
      const [next] = this.#queue;
      if (next === undefined) {
        await this.#waitForWork(signal, resyncAtMs);
        continue;
      }
      const [path, key] = next;
      this.#queue.delete(path);
      if (!(await this.#write(path, key, signal))) this.#queue.set(path, key);
      await pause(delayMs * (1 + JITTER * random()), signal);
    }
  }

  #set(key: StatusKey, status: EndpointStatus["status"] | undefined): void {
    const path = keyPath(key);
    if (status === undefined) this.#desired.delete(path);
    else this.#desired.set(path, { key, status });
    this.#queue.delete(path);
    this.#queue.set(path, key);
    this.#wake();
  }

  /** @returns false if the write must be repeated */
  async #write(path: string, key: StatusKey, signal: AbortSignal): Promise<boolean> {
    const desired = this.#desired.get(path);
    try {
      if (desired === undefined) await this.#options.store.delete(key, { signal });
      else await this.#options.store.apply({ key, value: { status: desired.status } }, { signal });
      return true;
    } catch (error) {
      if (error instanceof NotFound || error instanceof Unsupported) return true;
      if (!signal.aborted)
        this.#options.log.debug("could not write endpoint status; retrying", {
          key: path,
          error: describeError(error),
        });
      return false;
    }
  }

  /** Queues statuses of this host that are missing, different or superfluous in the datastore. */
  async #resync(signal: AbortSignal): Promise<void> {
    const { store, host, region } = this.#options;
    const stored = new Map<string, string>();
    for (const query of [
      { type: "workloadStatus", region, host },
      { type: "hostEndpointStatus", host },
    ] as const)
      for (const { key, value } of (await store.list(query, { signal })).items) {
        const path = keyPath(key);
        stored.set(path, value.status);
        if (!this.#desired.has(path)) this.#queue.set(path, key);
      }
    for (const [path, { key, status }] of this.#desired) if (stored.get(path) !== status) this.#queue.set(path, key);
  }

  async #waitForWork(signal: AbortSignal, resyncAtMs: number): Promise<void> {
    const waitMs = this.#isInSync ? Math.max(1, resyncAtMs - performance.now()) : 2 ** 30;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Math.min(waitMs, 2 ** 30));
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#wake = done;
      signal.addEventListener("abort", done, { once: true });
    });
    this.#wake = () => {};
  }
}
