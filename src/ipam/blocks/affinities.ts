// Claims and releases blocks. Ownership is recorded twice: in the affinity (host → block), from which routes are programmed,
// and in the block's `affinity` field, which is authoritative. The steps are
//
//   claim     affinity pending → block created → affinity confirmed
//   release   affinity pendingDeletion → block deleted, or its `affinity` cleared → affinity deleted
//
// After a crash between two steps, the next caller completes or reverts them.
import { Conflict, DatastoreError } from "../../datastore/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { type HostReserved, isEmpty, newBlock, type BlockOwner, formatBlockOwner } from "./block.ts";
import { withoutExpiredCooldowns } from "../release/cooldown.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import type { StoredAffinity, StoredBlock } from "../records.ts";

export const blockOwnerOf = (affinity: StoredAffinity): BlockOwner => ({
  type: affinity.key.affinityType,
  name: affinity.key.host,
});

/** Parses a block's `affinity` field. */
export function parseBlockOwner(affinity: string | undefined): BlockOwner | undefined {
  const [, type, name] = /^(host|virtual):(.+)$/.exec(affinity ?? "") ?? [];
  return name === undefined ? undefined : { type: type as BlockOwner["type"], name };
}

/** Affinities written by old versions have no state; they count as confirmed. */
export const isConfirmed = (affinity: StoredAffinity): boolean =>
  affinity.value.state === "confirmed" || affinity.value.state === "";

/**
 * Claims a block for an owner, and creates it if it does not exist.
 * @throws BlockClaimed if it has another owner
 */
export async function claimBlock(
  context: Context,
  cidr: Cidr,
  owner: BlockOwner,
  reserved?: HostReserved,
): Promise<StoredBlock> {
  return retryOnConflict(context, `affinity of ${formatBlockOwner(owner)} for ${cidr}`, async () => {
    const created = await context.records.createAffinity(owner, cidr, "pending");
    const affinity = created ?? (await context.records.affinity(owner, cidr));
    if (affinity === undefined) return undefined;
    try {
      return created === undefined
        ? await resolveAffinity(context, affinity, reserved)
        : await createBlock(context, affinity, reserved);
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  });
}

/**
 * Returns the block of an affinity. Completes a claim that an earlier attempt left unfinished.
 * @throws BlockClaimed if the block has another owner; the affinity is deleted then
 */
export async function resolveAffinity(
  context: Context,
  affinity: StoredAffinity,
  reserved?: HostReserved,
  known?: StoredBlock,
): Promise<StoredBlock> {
  const { records } = context;
  const block = known ?? (await records.block(affinity.key.cidr));
  if (block === undefined) return createBlock(context, await records.updateAffinity(affinity, "pending"), reserved);
  if (block.value.affinity !== formatBlockOwner(blockOwnerOf(affinity))) {
    await dropAffinity(context, affinity);
    throw new BlockClaimed(affinity.key.cidr, block.value.affinity);
  }
  if (isConfirmed(affinity)) return block;
  const pending = await records.updateAffinity(affinity, "pending");
  // The new revision makes a concurrent release of the block fail.
  const written = await records.updateBlock(block, block.value);
  await confirm(context, pending);
  return written;
}

async function createBlock(context: Context, pending: StoredAffinity, reserved?: HostReserved): Promise<StoredBlock> {
  const { records } = context;
  const owner = blockOwnerOf(pending);
  const block =
    (await records.createBlock(newBlock(pending.key.cidr, owner, context.nowMs, reserved))) ??
    (await records.block(pending.key.cidr));
  if (block === undefined) throw new Conflict(`IPAMBlock(${pending.key.cidr})`);
  if (block.value.affinity !== formatBlockOwner(owner)) {
    await dropAffinity(context, pending);
    throw new BlockClaimed(pending.key.cidr, block.value.affinity);
  }
  await confirm(context, pending);
  return block;
}

async function confirm(context: Context, pending: StoredAffinity): Promise<void> {
  try {
    await context.records.updateAffinity(pending, "confirmed");
  } catch (error) {
    if (!isConflict(error)) throw error;
    // Another process of this host may have confirmed it.
    const now = await context.records.affinity(blockOwnerOf(pending), pending.key.cidr);
    if (now === undefined || !isConfirmed(now)) throw error;
  }
}

/** Deletes an affinity whose block has another owner. A failure is only logged: the host's next assignment tries again. */
async function dropAffinity(context: Context, affinity: StoredAffinity): Promise<void> {
  try {
    await context.forCleanUp().records.deleteAffinity(affinity);
  } catch (error) {
    if (!(error instanceof DatastoreError)) throw error;
    context.log.warn("could not delete a stale block affinity", {
      block: affinity.key.cidr,
      host: affinity.key.host,
      error,
    });
  }
}

export interface ReleaseBlockOptions {
  /** Reject (`BlockNotEmpty`) if addresses are in use. */
  readonly mustBeEmpty: boolean;
  /** Reject if the block's sequence number has changed. */
  readonly sequenceNumber?: bigint;
}
/** Options that apply to several blocks. */
export type ReleaseBlocksOptions = Pick<ReleaseBlockOptions, "mustBeEmpty">;

/**
 * Releases a block: deletes it if it is empty, otherwise removes its owner. Addresses stay allocated.
 * @returns false if the owner has no affinity for the block
 */
export async function releaseBlockAffinity(
  context: Context,
  owner: BlockOwner,
  cidr: Cidr,
  options: ReleaseBlockOptions,
): Promise<boolean> {
  const { records } = context;
  return retryOnConflict(context, `release of block ${cidr}`, async () => {
    const affinity = await records.affinity(owner, cidr);
    if (affinity === undefined) return false;
    try {
      const block = await records.block(cidr);
      if (block !== undefined) {
        const value = await withoutExpiredCooldowns(context, block.value);
        if (block.value.affinity !== formatBlockOwner(owner)) {
          await dropAffinity(context, affinity);
          throw new BlockClaimed(cidr, block.value.affinity);
        }
        if (options.sequenceNumber !== undefined && block.value.sequenceNumber !== options.sequenceNumber)
          throw new Conflict(`IPAMBlock(${cidr})`, block);
        if (options.mustBeEmpty && !isEmpty(value)) throw new BlockNotEmpty(cidr);
        const leaving = await records.updateAffinity(affinity, "pendingDeletion");
        if (isEmpty(value)) await records.deleteBlock(block);
        else await records.updateBlock(block, withoutOwner(value));
        await records.deleteAffinity(leaving);
      } else await records.deleteAffinity(affinity);
      return true;
    } catch (error) {
      if (isConflict(error) && options.sequenceNumber === undefined) return undefined;
      throw error;
    }
  });
}

function withoutOwner(block: Block): Block {
  const { affinity: _owner, affinityClaimTime: _since, ...rest } = block;
  return rest;
}

/** Returns when the block was claimed. If that is not recorded, the sequence number is used: it starts at the creation time. */
export function claimedAtMs(block: Block): number {
  const recorded = block.affinityClaimTime === undefined ? Number.NaN : Date.parse(block.affinityClaimTime);
  return Number.isNaN(recorded) ? Number(block.sequenceNumber / 1_000_000n) : recorded;
}
