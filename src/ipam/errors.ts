// Defines the errors of IPAM. Messages keep Calico's wording, so that operators recognise them, and add details.
import type { Cidr, IpAddress, IpVersion } from "../lib/ip/ip.ts";

export abstract class IpamError extends Error {}

/** Every attempt conflicted with a write of another process. */
export class RetriesExhausted extends IpamError {
  override readonly name = "RetriesExhausted";
  constructor(readonly what: string) {
    super(`Max retries hit - excessive concurrent IPAM requests (${what})`);
  }
}

export class BlockLimitReached extends IpamError {
  override readonly name = "BlockLimitReached";
  /** @param assigned addresses assigned before the limit was reached; the caller must use or release them */
  constructor(
    readonly host: string,
    readonly limit: number,
    readonly assigned: readonly Cidr[] = [],
  ) {
    super(`cannot allocate new block due to per host block limit: ${host} owns ${limit} and they are full`);
  }
}

/** The setting autoAllocateBlocks is false, and no block of this host has a free address. */
export class NoBlockAllowed extends IpamError {
  override readonly name = "NoBlockAllowed";
  constructor(
    readonly host: string,
    readonly assigned: readonly Cidr[] = [],
  ) {
    super(`failed to find or claim a block: ${host} has no free address and autoAllocateBlocks is off`);
  }
}

export class NoQualifiedPool extends IpamError {
  override readonly name = "NoQualifiedPool";
  constructor(detail = "") {
    super(`cannot find a qualified ippool${detail}`);
  }
}

export class NoPoolForNode extends IpamError {
  override readonly name = "NoPoolForNode";
  constructor(
    readonly host: string,
    detail = "",
  ) {
    super(`no configured Calico pools for node ${host}${detail}`);
  }
}

export class PoolNotUsable extends IpamError {
  override readonly name = "PoolNotUsable";
  constructor(readonly pool: Cidr) {
    super(`the given pool (${pool}) does not exist, or is not enabled`);
  }
}

export class WrongPoolFamily extends IpamError {
  override readonly name = "WrongPoolFamily";
  constructor(
    readonly pool: Cidr,
    wanted: IpVersion,
  ) {
    super(`provided IPv${wanted} IPPools list contains one or more IPv${wanted === 4 ? 6 : 4} IPPools: ${pool}`);
  }
}

export class BadPool extends IpamError {
  override readonly name = "BadPool";
  constructor(
    readonly pool: string,
    reason: string,
    options?: ErrorOptions,
  ) {
    super(`ippool ${pool}: ${reason}`, options);
  }
}

export class NotInPool extends IpamError {
  override readonly name = "NotInPool";
  constructor(readonly subject: IpAddress | Cidr) {
    super(`The provided IP address is not in a configured pool\n`);
  }
}

export class UseNotAllowed extends IpamError {
  override readonly name = "UseNotAllowed";
  constructor(address: IpAddress, pool: string, use: string) {
    super(`the provided IP address ${address} is not in a pool allowed for ${use}: pool ${pool} allows other uses`);
  }
}

export class AddressTaken extends IpamError {
  override readonly name = "AddressTaken";
  constructor(
    readonly address: IpAddress,
    readonly handleId: string | undefined,
    readonly reason = "Address already assigned in block",
  ) {
    super(
      `resource already exists: ${address} with error: ${reason}${handleId === undefined ? "" : ` to ${handleId}`}`,
    );
  }
}

/** Strict affinity is enabled, and the block has another owner. */
export class BlockOwnedByOther extends IpamError {
  override readonly name = "BlockOwnedByOther";
  constructor(
    readonly block: Cidr,
    readonly owner: string | undefined,
  ) {
    super(`block ${block} belongs to ${owner ?? "no host"} and strict affinity is enabled`);
  }
}

/** Another host owns the block, or the block is in use and has no owner. */
export class BlockClaimed extends IpamError {
  override readonly name = "BlockClaimed";
  constructor(
    readonly block: Cidr,
    readonly owner: string | undefined,
  ) {
    super(`block ${block} is already claimed by ${owner ?? "no host, but is in use"}`);
  }
}

/** The allocation is not the one that the caller expects. No address of its block was released. */
export class StaleRelease extends IpamError {
  override readonly name = "StaleRelease";
  constructor(
    readonly address: IpAddress,
    readonly reason: "BadSequenceNumber" | "BadHandle" | "BadOwner",
    want: string,
    got: string,
  ) {
    super(`update conflict: ${address}: ${reason}: expected ${want}, allocated to ${got}`);
  }
}

export class BlockNotEmpty extends IpamError {
  override readonly name = "BlockNotEmpty";
  constructor(readonly block: Cidr) {
    super(`block '${block}' is not empty`);
  }
}

export class BlockTooSmall extends IpamError {
  override readonly name = "BlockTooSmall";
  constructor(cidr: Cidr, blockSize: number) {
    super(`${cidr} is smaller than a block (/${blockSize}) of its pool`);
  }
}

export class HandleLimitReached extends IpamError {
  override readonly name = "HandleLimitReached";
  constructor(
    readonly handleId: string,
    readonly limit: number,
  ) {
    super(`handle ${handleId} already holds its maximum of ${limit} addresses`);
  }
}

export class UnknownHandle extends IpamError {
  override readonly name = "UnknownHandle";
  constructor(readonly handleId: string) {
    super(`resource does not exist: IPAMHandle(${handleId})`);
  }
}

export class NotAssigned extends IpamError {
  override readonly name = "NotAssigned";
  constructor(readonly address: IpAddress) {
    super(`resource does not exist: ${address} with error: Address is not assigned`);
  }
}

export class InCooldown extends IpamError {
  override readonly name = "InCooldown";
  constructor(
    readonly address: IpAddress,
    readonly releasedAt: string,
  ) {
    super(`address ${address} is in cooldown (released ${releasedAt})`);
  }
}

export class BadRequest extends IpamError {
  override readonly name = "BadRequest";
}

/** One of the caller's extra writes conflicted with another process; no address was assigned. */
export class ExtraWritesConflict extends Error {
  override readonly name = "ExtraWritesConflict";
  constructor() {
    super("an entry that belongs to the addresses was changed by another process");
  }
}
