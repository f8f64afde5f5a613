// Endpoint status in the datastore. Changes wait in a queue, one write at a time with a pause between, so that a storm
// of them does not become a storm of writes. After the dataplane's first round, and now and then, what stands there for
// this host is compared with what should.
import type { DataplaneReport } from "../../calc/index.ts";
import { type Datastore, NotFound, Unsupported } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { pause } from "../../lib/retry.ts";
import { type EndpointStatus, type HostEndpointStatusKey, keyPath, type WorkloadStatusKey } from "../../model/index.ts";

type StatusKey = WorkloadStatusKey | HostEndpointStatusKey;
const RESYNC_DELAYS = 180;
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
  readonly #wanted = new Map<string, { readonly key: StatusKey; readonly status: EndpointStatus["status"] }>();
  /** Keys to look at, in the order they changed. */
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
    let resyncAt = 0;
    while (!signal.aborted) {
      if (this.#isInSync && performance.now() >= resyncAt) {
        resyncAt = performance.now() + RESYNC_DELAYS * delayMs;
        await this.#resync(signal).catch((error: unknown) =>
          log.debug("endpoint status cannot be compared", { error: describeError(error) }),
        );
      }
      const [next] = this.#queue;
      if (next === undefined) {
        await this.#somethingToDo(signal, resyncAt);
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
    if (status === undefined) this.#wanted.delete(path);
    else this.#wanted.set(path, { key, status });
    this.#queue.delete(path);
    this.#queue.set(path, key);
    this.#wake();
  }

  /** Whether it is done with. */
  async #write(path: string, key: StatusKey, signal: AbortSignal): Promise<boolean> {
    const wanted = this.#wanted.get(path);
    try {
      if (wanted === undefined) await this.#options.store.delete(key, { signal });
      else await this.#options.store.apply({ key, value: { status: wanted.status } }, { signal });
      return true;
    } catch (error) {
      if (error instanceof NotFound || error instanceof Unsupported) return true;
      if (!signal.aborted)
        this.#options.log.debug("endpoint status cannot be written; trying again", {
          key: path,
          error: describeError(error),
        });
      return false;
    }
  }

  /** Queues what stands in the datastore for this host and should not, or is missing there. */
  async #resync(signal: AbortSignal): Promise<void> {
    const { store, host, region } = this.#options;
    const found = new Map<string, string>();
    for (const query of [
      { type: "workloadStatus", region, host },
      { type: "hostEndpointStatus", host },
    ] as const)
      for (const { key, value } of (await store.list(query, { signal })).items) {
        const path = keyPath(key);
        found.set(path, value.status);
        if (!this.#wanted.has(path)) this.#queue.set(path, key);
      }
    for (const [path, { key, status }] of this.#wanted) if (found.get(path) !== status) this.#queue.set(path, key);
  }

  async #somethingToDo(signal: AbortSignal, resyncAt: number): Promise<void> {
    const waitMs = this.#isInSync ? Math.max(1, resyncAt - performance.now()) : 2 ** 30;
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
