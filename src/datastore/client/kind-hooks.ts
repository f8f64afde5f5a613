// Defines hooks that the client runs around each write of a kind: for rules beyond the schema, such as computed names,
// consistency with other resources, and cleanup before a deletion.
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { Resource, ResourceKey } from "../../model/index.ts";
import type { Datastore, Revision, Stored } from "../datastore.ts";

/** The part of IPAM that the client needs to delete a pool or a node. */
export interface AddressReleaser {
  /** Releases all affinities of blocks in a pool. */
  releasePool(cidr: Cidr, signal?: AbortSignal): Promise<unknown>;
  releaseAddresses(addresses: readonly IpAddress[], signal?: AbortSignal): Promise<unknown>;
  /** Releases the affinities of the host's blocks and deletes its IPAM data. */
  removeHost(host: string, signal?: AbortSignal): Promise<unknown>;
}

export interface HookContext {
  readonly store: Datastore;
  readonly addresses: AddressReleaser | undefined;
  readonly log: Logger;
  readonly signal: AbortSignal | undefined;
  /** Skip the checks against other resources: needed to split a pool. */
  readonly unsafe: boolean;
  /** Also enable encapsulation in FelixConfiguration, for agents older than 3.22, which do not read the pools. */
  readonly encapsulationInFelixConfiguration: boolean;
  readonly ensureInitialized: () => Promise<void>;
}

export interface KindHooks {
  /** Sets or checks metadata that the resource's other fields determine; runs before validation. */
  readonly prepare?: (resource: Resource) => Resource;
  readonly beforeCreate?: (resource: Resource, context: HookContext) => Promise<void>;
  readonly beforeUpdate?: (resource: Resource, current: Resource, context: HookContext) => Promise<void>;
  readonly afterWrite?: (resource: Resource, context: HookContext) => Promise<void>;
  /** Deletes or releases what depends on the resource. Returns the resource's new revision if it wrote the resource. */
  readonly beforeDelete?: (stored: Stored<ResourceKey>, context: HookContext) => Promise<Revision | undefined>;
  /** `beforeDelete` runs even if the resource does not exist: an interrupted deletion may have left its dependents. */
  readonly runsBeforeDeleteIfMissing?: true;
}
