// What a kind asks for beyond its schema: names it enforces, others it must agree with, what goes with it. One flow per
// kind that has such wishes; the client runs them around each write.
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { Resource, ResourceKey } from "../../model/index.ts";
import type { Datastore, Revision, Stored } from "../datastore.ts";

/** What the client asks of IPAM when a pool or a node goes. */
export interface AddressKeeper {
  /** Ends all ownership of blocks inside a pool. */
  releasePool(cidr: Cidr, signal?: AbortSignal): Promise<unknown>;
  releaseAddresses(addresses: readonly IpAddress[], signal?: AbortSignal): Promise<unknown>;
  /** The host gives up its blocks and is forgotten. */
  removeHost(host: string, signal?: AbortSignal): Promise<unknown>;
}

export interface FlowContext {
  readonly store: Datastore;
  readonly addresses: AddressKeeper | undefined;
  readonly log: Logger;
  readonly signal: AbortSignal | undefined;
  /** Write as told, past the checks against other resources: splitting a pool needs this. */
  readonly unsafe: boolean;
  /** Also tell older agents, which do not look at the pools, to switch encapsulation on. */
  readonly encapsulationInFelixConfiguration: boolean;
  readonly ensureInitialized: () => Promise<void>;
}

export interface Flow {
  /** Fills in or refuses what the resource's other fields decide; runs before validation. */
  readonly prepare?: (resource: Resource) => Resource;
  readonly beforeCreate?: (resource: Resource, context: FlowContext) => Promise<void>;
  readonly beforeUpdate?: (resource: Resource, current: Resource, context: FlowContext) => Promise<void>;
  readonly afterWrite?: (resource: Resource, context: FlowContext) => Promise<void>;
  /** Clears the way; gives the revision to delete at when it wrote the resource itself. */
  readonly beforeDelete?: (stored: Stored<ResourceKey>, context: FlowContext) => Promise<Revision | undefined>;
  /** What goes with it may be left of one that is gone: then the way is cleared all the same. */
  readonly leavesRemains?: true;
}
