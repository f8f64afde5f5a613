// One of several replicas works, the others wait: a Lease of Kubernetes says which. The holder renews it; when it has not
// been renewed for its whole duration, by the clock of who waits, the next takes it. A holder that cannot renew stops
// working before others may begin.
import { hostname } from "node:os";
import type { KubeApi, KubeObject } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { delay, pause } from "../lib/retry.ts";
import { codeOf } from "./status-code.ts";

interface Lease extends KubeObject {
  readonly spec: {
    readonly holderIdentity?: string;
    readonly leaseDurationSeconds?: number;
    readonly acquireTime?: string;
    readonly renewTime?: string;
    readonly leaseTransitions?: number;
  };
}

export interface LeaderTimings {
  /** Others wait this long after the last renewal. */
  readonly durationMs: number;
  /** The holder gives up when it could not renew for this long: well before others begin. */
  readonly giveUpMs: number;
  readonly retryMs: number;
}
/** A holder that cannot renew has a third of the lease to finish what it had sent. */
export const leaderTimings = (durationMs = 15_000): LeaderTimings => ({
  durationMs,
  giveUpMs: (durationMs * 2) / 3,
  retryMs: (durationMs * 2) / 15,
});

/** A busy API server takes its time; whoever ends must not take much of it. */
const RELEASE_WITHIN_MS = 3000;

/** Somebody else may be doing the work by now. */
export class NotLeading extends Error {
  override readonly name = "NotLeading";
  constructor() {
    super("another replica may be doing the work: nothing written");
  }
}

export interface LeadershipOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  readonly name: string;
  readonly log: Logger;
  readonly identity?: string;
  readonly timings?: LeaderTimings;
  readonly now?: () => number;
}

export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #timings: LeaderTimings;
  readonly #identity: string;
  readonly #now: () => number;
  readonly #collection: string;
  /** The lease as it was last seen, and when we first saw it so. */
  #seen: { readonly revision: string; readonly at: number } | undefined;
  #isAlone = false;
  #isHolder = false;
  /** Before the request that last took or renewed it: others count from later than that. */
  #renewedAt = 0;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#timings = options.timings ?? leaderTimings();
    this.#identity = options.identity ?? `${hostname()}_${process.pid}_${crypto.randomUUID()}`;
    this.#now = options.now ?? (() => performance.now());
    this.#collection = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(options.namespace)}/leases`;
  }

  /** We hold the lease, and it has not run out meanwhile; or there is none to hold. */
  get mayWork(): boolean {
    return this.#isAlone || (this.#isHolder && this.#now() - this.#renewedAt <= this.#timings.giveUpMs);
  }

  /** Waits until we may work. */
  async acquire(signal: AbortSignal): Promise<void> {
    for (let isTold = false; ; ) {
      signal.throwIfAborted();
      try {
        if (await this.#try(signal)) return;
        if (!isTold) this.#options.log.info("another replica does the work; waiting");
        isTold = true;
      } catch (error) {
        signal.throwIfAborted();
        if (codeOf(error) === 403) {
          this.#options.log.warn("no right to leases: a second replica would not be noticed", {
            error: describeError(error),
          });
          this.#isAlone = true;
          return;
        }
        this.#options.log.warn("cannot ask who leads; trying again", { error: describeError(error) });
      }
      await delay(this.#timings.retryMs, signal);
    }
  }

  /** Keeps the lease until the signal aborts; resolves earlier when it is lost. */
  async hold(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(this.#timings.retryMs, signal);
      if (signal.aborted) return;
      if (this.#isAlone) continue;
      try {
        const leftMs = this.#timings.giveUpMs - (this.#now() - this.#renewedAt);
        const until = AbortSignal.any([signal, AbortSignal.timeout(Math.max(1, Math.ceil(leftMs)))]);
        if (!(await this.#try(until))) return this.#lost("another replica took over");
      } catch (error) {
        if (signal.aborted) return;
        if (!this.mayWork) return this.#lost(describeError(error));
      }
    }
  }

  /** Lets the next begin at once. */
  async release(): Promise<void> {
    if (!this.#isHolder || this.#isAlone) return;
    this.#isHolder = false;
    const signal = AbortSignal.timeout(RELEASE_WITHIN_MS);
    while (!signal.aborted)
      try {
        const lease = await this.#get(signal);
        if (lease?.spec.holderIdentity !== this.#identity) return;
        await this.#put({ ...lease, spec: { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1 } }, signal);
        return;
      } catch (error) {
        // A renewal that was under way when we stopped may have come between. With any other fault the next one waits
        // out the lease.
        if (codeOf(error) !== 409) return;
      }
  }

  #lost(reason: string): void {
    this.#isHolder = false;
    this.#options.log.error("no longer the replica that works", { reason });
  }

  /** Takes or renews the lease; false when it is another's. */
  async #try(signal: AbortSignal): Promise<boolean> {
    const lease = await this.#get(signal);
    const sentAt = this.#now();
    const now = microTime(new Date());
    const leaseDurationSeconds = Math.max(1, Math.ceil(this.#timings.durationMs / 1000));
    const mine = { holderIdentity: this.#identity, leaseDurationSeconds, renewTime: now };
    try {
      if (lease === undefined) {
        await this.#create({ ...mine, acquireTime: now, leaseTransitions: 0 }, signal);
      } else if (lease.spec.holderIdentity === this.#identity) {
        await this.#put({ ...lease, spec: { ...lease.spec, ...mine } }, signal);
      } else {
        if (!this.#hasLapsed(lease)) return false;
        const leaseTransitions = (lease.spec.leaseTransitions ?? 0) + 1;
        await this.#put({ ...lease, spec: { ...mine, acquireTime: now, leaseTransitions } }, signal);
      }
    } catch (error) {
      if (codeOf(error) === 409) return false; // somebody was quicker
      throw error;
    }
    if (!this.#isHolder) this.#options.log.info("this replica does the work");
    this.#isHolder = true;
    this.#renewedAt = sentAt;
    return true;
  }

  /** Clocks of machines differ: only what we saw ourselves counts. */
  #hasLapsed({ metadata, spec }: Lease): boolean {
    if ((spec.holderIdentity ?? "") === "") return true;
    const revision = metadata.resourceVersion ?? "";
    if (this.#seen?.revision !== revision) this.#seen = { revision, at: this.#now() };
    // What the holder was promised counts, should its settings be others than ours.
    const durationMs = Math.max(this.#timings.durationMs, (spec.leaseDurationSeconds ?? 0) * 1000);
    return this.#now() - this.#seen.at > durationMs;
  }

  async #get(signal: AbortSignal): Promise<Lease | undefined> {
    try {
      return await this.#options.api.get<Lease>(`${this.#collection}/${this.#options.name}`, { signal });
    } catch (error) {
      if (codeOf(error) === 404) return undefined;
      throw error;
    }
  }

  async #create(spec: Lease["spec"], signal: AbortSignal): Promise<void> {
    const body = { metadata: { name: this.#options.name }, spec };
    await this.#options.api.json({ method: "POST", path: this.#collection, body, signal });
  }

  async #put(lease: Lease, signal: AbortSignal): Promise<void> {
    const path = `${this.#collection}/${this.#options.name}`;
    await this.#options.api.json({ method: "PUT", path, body: lease, signal });
  }
}

const microTime = (date: Date): string => date.toISOString().replace("Z", "000Z");
