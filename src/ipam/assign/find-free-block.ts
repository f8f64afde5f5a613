// Finds a block that is not claimed, or an empty block of another host. Affinities are small and name nearly every existing
// block, so a crowded pool is searched by listing affinities. Blocks contain all allocations, so they are listed only if the
// affinities do not lead to a free block.
import {
  addressToBigInt,
  type Cidr,
  cidrAddress,
  cidrContains,
  cidrSize,
  type IpVersion,
  ipVersion,
} from "../../lib/ip/ip.ts";
import { Unauthorized } from "../../datastore/index.ts";
import { claimBlock, claimedAtMs, releaseBlockAffinity, parseBlockOwner } from "../blocks/affinities.ts";
import {
  addressAt,
  freeExpiredCooldowns,
  type HostReserved,
  isEmpty,
  type BlockOwner,
  formatBlockOwner,
} from "../blocks/block.ts";
import { BlockOrder } from "./block-order.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import type { StoredAffinity, StoredBlock } from "../records.ts";
import type { Reservations } from "./reservations.ts";
import type { IpPool } from "../../model/index.ts";

/** An empty block of another host may be taken over this long after it was claimed. */
const RECLAIM_AFTER_MS = 60_000;
/** This many failed claims indicate that there are blocks without affinity; all blocks are then listed. */
const MAX_LOST_CLAIMS = 8;

export interface BlockSearch {
  readonly pools: readonly IpPool[];
  readonly owner: BlockOwner;
  readonly version: IpVersion;
  readonly reservations: Reservations;
  /** The owner's blocks that are known to be full. */
  readonly exhausted: ReadonlySet<Cidr>;
  readonly cooldownSeconds: number;
  readonly hostReserved?: HostReserved;
}

/** Number of blocks that are read before all affinities are listed. */
const PROBES = 4;

/** Claims a new block for the owner. Returns undefined if every block of the pools is claimed. */
export async function claimFreeBlock(context: Context, search: BlockSearch): Promise<StoredBlock | undefined> {
  const taken = new Set(search.exhausted);
  return (await claimNearStart(context, search, taken)) ?? (await claimByAffinities(context, search, taken));
}

/** In a pool that is not crowded, one of the first blocks of the host's order is free, so nothing needs to be listed. */
async function claimNearStart(context: Context, search: BlockSearch, taken: Set<Cidr>) {
  const [pool] = search.pools;
  if (pool === undefined || !search.reservations.isEmpty) return undefined;
  const order = orderOf(context, pool, search.owner);
  const positions = order.count < PROBES ? Number(order.count) : PROBES;
  const near = Array.from({ length: positions }, (_, i) => order.at(BigInt(i))).filter((cidr) => !taken.has(cidr));
  const blocks = await Promise.all(near.map((cidr) => context.records.block(cidr)));
  for (const [i, cidr] of near.entries()) {
    const block = blocks[i];
    if (block !== undefined && !isOwnedBy(block, search.owner)) taken.add(cidr);
    else {
      const claimed = await tryClaim(context, search, cidr);
      if (claimed !== undefined) return claimed;
      taken.add(cidr);
    }
  }
  return undefined;
}

async function claimByAffinities(
  context: Context,
  search: BlockSearch,
  taken: Set<Cidr>,
): Promise<StoredBlock | undefined> {
  for (const affinity of await context.records.affinities(search.version))
    if (!isAffinityOf(affinity, search.owner)) taken.add(affinity.key.cidr);
  let lost = 0;
  for (const pool of search.pools) {
    const order = orderOf(context, pool, search.owner);
    for (let position = 0n; position < order.count; position++) {
      const cidr = order.at(position);
      if (taken.has(cidr)) continue;
      const end = search.reservations.endOfCover(cidr);
      if (end !== undefined) {
        position += blocksUntil(cidr, end, order, position) - 1n;
        continue;
      }
      const block = await tryClaim(context, search, cidr);
      if (block !== undefined) return block;
      taken.add(cidr);
      if (++lost === MAX_LOST_CLAIMS)
        for (const { key } of await context.records.blocks(search.version)) taken.add(key.cidr);
    }
  }
  return undefined;
}

/** Returns the number of blocks to skip inside a reserved range, but not past the wrap-around of the order. */
function blocksUntil(cidr: Cidr, end: bigint, order: BlockOrder, position: bigint): bigint {
  const blocks = (end - addressToBigInt(cidrAddress(cidr))) / cidrSize(cidr);
  const untilWrap = order.untilWrap(position);
  return blocks < untilWrap ? blocks : untilWrap;
}

/** Claims the block. Returns undefined if another owner has it, or if it has no free address. */
export async function tryClaim(context: Context, search: BlockSearch, cidr: Cidr): Promise<StoredBlock | undefined> {
  try {
    const claimed = await claimBlock(context, cidr, search.owner, search.hostReserved);
    const block = withExpiredCooldownsFreed(context, claimed, search.cooldownSeconds);
    return hasFreeAddress(block, search.reservations) ? block : undefined;
  } catch (error) {
    if (error instanceof BlockClaimed || isConflict(error)) return undefined;
    throw error;
  }
}

/**
 * Claims one of several existing blocks: one that already has this owner, or an empty one of another owner.
 * @param blocks in the order in which they are tried
 * @returns undefined if each block is in use or was claimed less than `RECLAIM_AFTER_MS` ago
 */
export async function claimExistingBlock(
  context: Context,
  search: BlockSearch,
  blocks: readonly StoredBlock[],
): Promise<StoredBlock | undefined> {
  const candidates = blocks.filter(
    (block) => !search.exhausted.has(block.key.cidr) && hasFreeAddress(block, search.reservations),
  );
  for (const block of candidates) {
    const claimed = isOwnedBy(block, search.owner) ? await tryClaim(context, search, block.key.cidr) : undefined;
    if (claimed !== undefined) return claimed;
  }
  for (const block of candidates) {
    if (!isEmpty(block.value) || context.nowMs - claimedAtMs(block.value) < RECLAIM_AFTER_MS) continue;
    const claimed = await takeOver(context, search, block);
    if (claimed !== undefined) return claimed;
  }
  return undefined;
}

async function takeOver(context: Context, search: BlockSearch, block: StoredBlock): Promise<StoredBlock | undefined> {
  const { cidr } = block.key;
  const { affinity, sequenceNumber } = block.value;
  const previousOwner = parseBlockOwner(affinity);
  try {
    const isReleased =
      previousOwner !== undefined &&
      (await releaseBlockAffinity(context, previousOwner, cidr, { mustBeEmpty: true, sequenceNumber }));
    if (!isReleased) await context.records.deleteBlock(block); // the block is empty and has no affinity
    context.log.info("took over an empty block", { block: cidr, from: affinity, to: formatBlockOwner(search.owner) });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isConflict(error)) return undefined;
    // In Kubernetes, the accounts of a node may not write affinities of another node (ValidatingAdmissionPolicy).
    if (error instanceof Unauthorized) {
      context.log.info("not allowed to take over an empty block", { block: cidr, from: affinity, error });
      return undefined;
    }
    throw error;
  }
  return tryClaim(context, search, cidr);
}

export function orderOf(context: Context, pool: IpPool, owner: BlockOwner): BlockOrder {
  return new BlockOrder(pool, owner.name, () => Math.floor(context.options.random() * 2 ** 31));
}

/** A pool may have been re-created with another block size. Blocks of the old size do not belong to the new pool. */
export const isBlockOf = (cidr: Cidr, pool: IpPool): boolean =>
  cidr.endsWith(`/${pool.blockSize}`) && ipVersion(cidr) === ipVersion(pool.cidr) && cidrContains(pool.cidr, cidr);

const isAffinityOf = (affinity: StoredAffinity, owner: BlockOwner): boolean =>
  affinity.key.host === owner.name && affinity.key.affinityType === owner.type;

const isOwnedBy = (block: StoredBlock, owner: BlockOwner): boolean => block.value.affinity === formatBlockOwner(owner);

/** Returns the block with expired cooldowns freed. The change is stored with the next write of the block. */
export function withExpiredCooldownsFreed(context: Context, block: StoredBlock, cooldownSeconds: number): StoredBlock {
  const value = freeExpiredCooldowns(block.value, cooldownSeconds, context.nowMs);
  return value === block.value ? block : { ...block, value };
}

/** True if at least one address is free and not reserved. */
export function hasFreeAddress({ value }: StoredBlock, reservations: Reservations): boolean {
  if (reservations.isEmpty) return value.unallocated.length > 0;
  return value.unallocated.some((ordinal) => !reservations.has(addressAt(value, ordinal)));
}
