// Limits the time of one request for all its datastore calls and for waiting for locks.
import { type Datastore, Unavailable } from "../datastore/index.ts";
import { GRPC_REPLY_TIMEOUT_SECONDS, usesGrpcDataplane } from "./request/dataplane-options.ts";
import { GATE_TIMEOUT_SECONDS } from "./attach/readiness.ts";
import type { NetConf } from "./request/net-conf.ts";
import type { CniRequest } from "./request/request.ts";

/** Share of `datastore_timeout_seconds` that is reserved for undoing a failed ADD. */
export const ROLLBACK_SHARE = 0.3;

/**
 * On Kubernetes each call has its own time limit, and a request makes many calls. This limit ends a request before the
 * kubelet repeats it (two minutes), because other pods of the node wait for its locks.
 */
const KUBERNETES_SECONDS = 60;

export class Deadline implements Disposable {
  readonly #aborter = new AbortController();
  readonly #timer: Timer;

  constructor(store: Datastore, seconds: number) {
    const abort = (): void =>
      this.#aborter.abort(new Unavailable(store.name, `no reply in time (waited for ${seconds.toFixed(1)} s)`));
    this.#timer = setTimeout(abort, seconds * 1000);
  }

  /** Returns undefined for GC, which may take long. */
  static for(store: Datastore, request: CniRequest, conf: NetConf): Deadline | undefined {
    if (request.command === "GC") return undefined;
    const gates = conf.readinessGates.length * GATE_TIMEOUT_SECONDS;
    const others = gates + (usesGrpcDataplane(conf) ? GRPC_REPLY_TIMEOUT_SECONDS : 0);
    const own = conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE);
    return new Deadline(store, others + (store.name === "kubernetes" ? Math.max(KUBERNETES_SECONDS, own) : own));
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}
