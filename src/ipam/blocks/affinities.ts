// Who owns a block. Two records must agree: the affinity (host → block, what routes are made from) and the block's own
// `affinity` field, which decides. The affinity goes pending → block written → confirmed, and pendingDeletion → block
// given up → deleted, so a crash at any point leaves something that the next caller finishes or undoes.
import { DatastoreError } from "../../datastore/index.ts";
import { Conflict } from "../../datastore/index.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { type HostReserved, isEmpty, newBlock, type Owner, ownerText } from "./block.ts";
import { withoutExpiredCooldowns } from "../release/cooldown.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import type { StoredAffinity, StoredBlock } from "../records.ts";

export const ownerOf = (affinity: StoredAffinity): Owner => ({
  type: affinity.key.affinityType,
  name: affinity.key.host,
});

/** From a block's `affinity`. */
export function parseOwner(affinity: string | undefined): Owner | undefined {
  const [, type, name] = /^(host|virtual):(.+)$/.exec(affinity ?? "") ?? [];
  return name === undefined ? undefined : { type: type as Owner["type"], name };
}

/** Old records have no state: they count as confirmed. */
export const isConfirmed = (affinity: StoredAffinity): boolean =>
  affinity.value.state === "confirmed" || affinity.value.state === "";

/** Makes the block ours; `BlockClaimed` when it is another's. */
export async function claimBlock(
  context: Context,
  cidr: Cidr,
  owner: Owner,
  reserved?: HostReserved,
): Promise<StoredBlock> {
  return retryOnConflict(context, `affinity of ${ownerText(owner)} for ${cidr}`, async () => {
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

/** The block behind one of our affinities, made or confirmed where an earlier attempt stopped half way. */
export async function resolveAffinity(
  context: Context,
  affinity: StoredAffinity,
  reserved?: HostReserved,
  known?: StoredBlock,
): Promise<StoredBlock> {
  const { records } = context;
  const block = known ?? (await records.block(affinity.key.cidr));
  if (block === undefined) return createBlock(context, await records.updateAffinity(affinity, "pending"), reserved);
  if (block.value.affinity !== ownerText(ownerOf(affinity))) {
    await dropAffinity(context, affinity);
    throw new BlockClaimed(affinity.key.cidr, block.value.affinity);
  }
  if (isConfirmed(affinity)) return block;
  const pending = await records.updateAffinity(affinity, "pending");
  // A new revision of the block stops whoever is about to give it up.
  const written = await records.updateBlock(block, block.value);
  await confirm(context, pending);
  return written;
}

async function createBlock(context: Context, pending: StoredAffinity, reserved?: HostReserved): Promise<StoredBlock> {
  const { records } = context;
  const owner = ownerOf(pending);
  const block =
    (await records.createBlock(newBlock(pending.key.cidr, owner, context.nowMs, reserved))) ??
    (await records.block(pending.key.cidr));
  if (block === undefined) throw new Conflict(`IPAMBlock(${pending.key.cidr})`);
  if (block.value.affinity !== ownerText(owner)) {
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
    // Another process of this host may have confirmed it for us.
    const now = await context.records.affinity(ownerOf(pending), pending.key.cidr);
    if (now === undefined || !isConfirmed(now)) throw error;
  }
}

/** Removes an affinity that lost its block. Failing is no harm: the next assignment on that host tries again. */
async function dropAffinity(context: Context, affinity: StoredAffinity): Promise<void> {
  try {
    await context.forCleanUp().records.deleteAffinity(affinity);
  } catch (error) {
    if (!(error instanceof DatastoreError)) throw error;
    context.log.warn("stale block affinity stays for now", {
      block: affinity.key.cidr,
      host: affinity.key.host,
      error,
    });
  }
}

export interface GiveUpOptions {
  /** Refuse when addresses are in use. */
  readonly mustBeEmpty: boolean;
  /** Refuse when the block changed since it was looked at. */
  readonly sequenceNumber?: bigint;
}
/** Of many blocks at once. */
export type GivingUp = Pick<GiveUpOptions, "mustBeEmpty">;

/** Ends the ownership: an empty block disappears, one in use stays without owner. False when there was no such affinity. */
export async function releaseBlock(
  context: Context,
  owner: Owner,
  cidr: Cidr,
  options: GiveUpOptions,
): Promise<boolean> {
  const { records } = context;
  return retryOnConflict(context, `release of block ${cidr}`, async () => {
    const affinity = await records.affinity(owner, cidr);
    if (affinity === undefined) return false;
    try {
      const block = await records.block(cidr);
      if (block !== undefined) {
        const value = await withoutExpiredCooldowns(context, block.value);
        if (block.value.affinity !== ownerText(owner)) {
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

/** When the block came to its owner. Where nobody recorded it, the sequence number tells: it starts at the time of creation. */
export function claimedAtMs(block: Block): number {
  const recorded = block.affinityClaimTime === undefined ? Number.NaN : Date.parse(block.affinityClaimTime);
  return Number.isNaN(recorded) ? Number(block.sequenceNumber / 1_000_000n) : recorded;
}
