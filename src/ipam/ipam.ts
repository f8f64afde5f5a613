// The library's face: one object per datastore, safe to use from many tasks, hosts and processes at once.
import type { IpAddress } from "../lib/ip.ts";
import { silentLogger } from "../lib/log.ts";
import type { IpamConfig } from "../model/index.ts";
import { type AssignAddressRequest, assignAddress } from "./assign-address.ts";
import { type Assignments, type AutoAssignRequest, autoAssign } from "./auto-assign.ts";
import { changeConfig, readConfig } from "./config.ts";
import { Context, type IpamOptions } from "./context.ts";
import { type ReleaseRequest, type ReleaseResult, releaseAddresses, releaseByHandle } from "./release.ts";

export class Ipam {
  readonly #options: IpamOptions;

  constructor(options: Pick<IpamOptions, "datastore"> & Partial<IpamOptions>) {
    this.#options = { log: silentLogger, nowMs: Date.now, random: Math.random, ...options };
  }

  /** Addresses of one family for a host. Fewer than asked for is no error: the result says why. */
  autoAssign(request: AutoAssignRequest, signal?: AbortSignal): Promise<Assignments> {
    return autoAssign(this.#context(signal), request);
  }

  /** Exactly this address, or an error saying who has it. */
  assignAddress(request: AssignAddressRequest, signal?: AbortSignal): Promise<void> {
    return assignAddress(this.#context(signal), request);
  }

  release(requests: readonly ReleaseRequest[], signal?: AbortSignal): Promise<ReleaseResult> {
    return releaseAddresses(this.#context(signal), requests);
  }

  /** All addresses of a handle; `UnknownHandle` when there is no such handle. */
  releaseByHandle(handleId: string, signal?: AbortSignal): Promise<readonly IpAddress[]> {
    return releaseByHandle(this.#context(signal), handleId);
  }

  config(signal?: AbortSignal): Promise<IpamConfig> {
    return readConfig(this.#context(signal));
  }

  configure(change: Partial<IpamConfig>, signal?: AbortSignal): Promise<IpamConfig> {
    return changeConfig(this.#context(signal), change);
  }

  #context(signal: AbortSignal | undefined): Context {
    return new Context(this.#options, signal);
  }
}
