// Elects one of several replicas as the leader, with a Kubernetes Lease. The leader renews the lease. If a waiting replica sees
// no renewal for the duration of the lease, measured by its own clock, it takes the lease. A leader that cannot renew stops
// working before another replica may start.
import { hostname } from "node:os";
import type { KubeApi, KubeObject } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { delay, pause } from "../lib/retry.ts";
import { httpStatusOf } from "./http-status.ts";

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
  /** Another replica may take the lease this long after the last renewal that it saw. */
  readonly durationMs: number;
  /** The leader stops if it could not renew for this long. Shorter than `durationMs`. */
  readonly renewDeadlineMs: number;
  readonly retryMs: number;
}
/** After the renew deadline, a third of the lease is left for requests in flight to complete. */
export const leaderTimings = (durationMs = 15_000): LeaderTimings => ({
  durationMs,
  renewDeadlineMs: (durationMs * 2) / 3,
  retryMs: (durationMs * 2) / 15,
});

/** Limits how long a slow API server can delay the shutdown. */
const RELEASE_TIMEOUT_MS = 3000;

/** A write was not sent because another replica may be the leader. */
export class NotLeader extends Error {
  override readonly name = "NotLeader";
  constructor() {
    super("nothing written: this replica no longer holds the leader lease");
  }
}

export interface LeadershipOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  /** Name of the Lease. */
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
  /** The last version of the lease that this replica read, and when it first read that version. */
  #observed: { readonly revision: string; readonly atMs: number } | undefined;
  /** This replica has no right to leases, and works without one. */
  #worksWithoutLease = false;
  #isHolder = false;
  /** When the last successful acquire or renew request was about to be sent. Other replicas count from a later time. */
  #renewedAtMs = 0;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#timings = options.timings ?? leaderTimings();
    this.#identity = options.identity ?? `${hostname()}_${process.pid}_${crypto.randomUUID()}`;
    this.#now = options.now ?? (() => performance.now());
    this.#collection = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(options.namespace)}/leases`;
  }

  /** This replica holds the lease and renewed it before the deadline, or it works without a lease. */
  get isLeader(): boolean {
    return (
      this.#worksWithoutLease || (this.#isHolder && this.#now() - this.#renewedAtMs <= this.#timings.renewDeadlineMs)
    );
  }

  /** Waits until this replica is the leader. */
  async acquire(signal: AbortSignal): Promise<void> {
    for (let isLogged = false; ; ) {
      signal.throwIfAborted();
      try {
        if (await this.#acquireOrRenew(signal)) return;
        if (!isLogged) this.#options.log.info("another replica holds the leader lease, waiting");
        isLogged = true;
      } catch (error) {
        signal.throwIfAborted();
        if (httpStatusOf(error) === 403) {
          this.#options.log.warn("access to leases is denied, working without one; run only one replica", {
            error: describeError(error),
          });
          this.#worksWithoutLease = true;
          return;
        }
        this.#options.log.warn("cannot read or write the leader lease, retrying", { error: describeError(error) });
      }
      await delay(this.#timings.retryMs, signal);
    }
  }

  /** Renews the lease until the signal aborts; returns earlier if the lease is lost. */
  async hold(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(this.#timings.retryMs, signal);
      if (signal.aborted) return;
      if (this.#worksWithoutLease) continue;
      try {
        const leftMs = this.#timings.renewDeadlineMs - (this.#now() - this.#renewedAtMs);
        const until = AbortSignal.any([signal, AbortSignal.timeout(Math.max(1, Math.ceil(leftMs)))]);
        if (!(await this.#acquireOrRenew(until))) return this.#onLost("another replica holds it");
      } catch (error) {
        if (signal.aborted) return;
        if (!this.isLeader) return this.#onLost(describeError(error));
      }
    }
  }

  /** Clears the holder, so that another replica can start at once. */
  async release(): Promise<void> {
    if (!this.#isHolder || this.#worksWithoutLease) return;
    this.#isHolder = false;
    const signal = AbortSignal.timeout(RELEASE_TIMEOUT_MS);
    while (!signal.aborted)
      try {
        const lease = await this.#get(signal);
        if (lease?.spec.holderIdentity !== this.#identity) return;
        await this.#put({ ...lease, spec: { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1 } }, signal);
        return;
      } catch (error) {
        // 409 means that a renewal in flight was written after the read: read again. After any other error, another replica
        // takes the lease when it expires.
        if (httpStatusOf(error) !== 409) return;
      }
  }

  #onLost(reason: string): void {
    this.#isHolder = false;
    this.#options.log.error("lost the leader lease", { reason });
  }

  /** @returns false if another replica holds the lease */
  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const lease = await this.#get(signal);
    const sentAt = this.#now();
    const now = microTime(new Date());
    const leaseDurationSeconds = Math.max(1, Math.ceil(this.#timings.durationMs / 1000));
    const holder = { holderIdentity: this.#identity, leaseDurationSeconds, renewTime: now };
    try {
      if (lease === undefined) {
        await this.#create({ ...holder, acquireTime: now, leaseTransitions: 0 }, signal);
      } else if (lease.spec.holderIdentity === this.#identity) {
        await this.#put({ ...lease, spec: { ...lease.spec, ...holder } }, signal);
      } else {
        if (!this.#hasExpired(lease)) return false;
        const leaseTransitions = (lease.spec.leaseTransitions ?? 0) + 1;
        await this.#put({ ...lease, spec: { ...holder, acquireTime: now, leaseTransitions } }, signal);
      }
    } catch (error) {
      if (httpStatusOf(error) === 409) return false; // another replica wrote the lease first
      throw error;
    }
    if (!this.#isHolder) this.#options.log.info("acquired the leader lease");
    this.#isHolder = true;
    this.#renewedAtMs = sentAt;
    return true;
  }

  /** Measured from the time of this replica's own read, not from `renewTime`, because clocks of hosts differ. */
  #hasExpired({ metadata, spec }: Lease): boolean {
    if ((spec.holderIdentity ?? "") === "") return true;
    const revision = metadata.resourceVersion ?? "";
    if (this.#observed?.revision !== revision) this.#observed = { revision, atMs: this.#now() };
    // The holder may use a longer duration than this replica; the lease contains it.
    const durationMs = Math.max(this.#timings.durationMs, (spec.leaseDurationSeconds ?? 0) * 1000);
    return this.#now() - this.#observed.atMs > durationMs;
  }

  async #get(signal: AbortSignal): Promise<Lease | undefined> {
    try {
      return await this.#options.api.get<Lease>(`${this.#collection}/${this.#options.name}`, { signal });
    } catch (error) {
      if (httpStatusOf(error) === 404) return undefined;
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
