// Finding a block nobody has, or that nobody uses. Affinities are small and name nearly every block there is, so they
// are what a crowded pool is searched by; blocks, which carry all allocations, are listed only when that finds nothing.
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
import { claimBlock, claimedAtMs, releaseBlock, parseOwner } from "../blocks/affinities.ts";
import { addressAt, freeExpiredCooldowns, type HostReserved, isEmpty, type Owner, ownerText } from "../blocks/block.ts";
import { BlockOrder } from "./block-order.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import type { StoredAffinity, StoredBlock } from "../records.ts";
import type { Reservations } from "./reservations.ts";
import type { IpPool } from "../../model/index.ts";

/** An empty block of another host may be taken over once it has been idle this long. */
const RECLAIM_AFTER_MS = 60_000;
/** So many lost claims mean there are blocks without affinity: look at the blocks themselves. */
const LOST_CLAIMS = 8;

export interface BlockSearch {
  readonly pools: readonly IpPool[];
  readonly owner: Owner;
  readonly version: IpVersion;
  readonly reservations: Reservations;
  /** Blocks of ours that are known to be full. */
  readonly exhausted: ReadonlySet<Cidr>;
  readonly cooldownSeconds: number;
  readonly hostReserved?: HostReserved;
}

/** So many places are looked at directly before all affinities are listed. */
const PROBES = 4;

/** A new block for this owner; undefined when every block of the pools has been claimed by somebody. */
export async function claimFreeBlock(context: Context, search: BlockSearch): Promise<StoredBlock | undefined> {
  const taken = new Set(search.exhausted);
  return (await claimNearStart(context, search, taken)) ?? (await claimByAffinities(context, search, taken));
}

/** In a pool that is not crowded the host's own corner is free: nothing needs to be listed. */
async function claimNearStart(context: Context, search: BlockSearch, taken: Set<Cidr>) {
  const [pool] = search.pools;
  if (pool === undefined || !search.reservations.isEmpty) return undefined;
  const order = orderOf(context, pool, search.owner);
  const places = order.count < PROBES ? Number(order.count) : PROBES;
  const near = Array.from({ length: places }, (_, i) => order.at(BigInt(i))).filter((cidr) => !taken.has(cidr));
  const blocks = await Promise.all(near.map((cidr) => context.records.block(cidr)));
  for (const [i, cidr] of near.entries()) {
    const block = blocks[i];
    if (block !== undefined && !isOurs(block, search.owner)) taken.add(cidr);
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
    if (!isOf(affinity, search.owner)) taken.add(affinity.key.cidr);
  let lost = 0;
  for (const pool of search.pools) {
    const order = orderOf(context, pool, search.owner);
    for (let place = 0n; place < order.count; place++) {
      const cidr = order.at(place);
      if (taken.has(cidr)) continue;
      const end = search.reservations.endOfCover(cidr);
      if (end !== undefined) {
        place += blocksUntil(cidr, end, order, place) - 1n;
        continue;
      }
      const block = await tryClaim(context, search, cidr);
      if (block !== undefined) return block;
      taken.add(cidr);
      if (++lost === LOST_CLAIMS)
        for (const { key } of await context.records.blocks(search.version)) taken.add(key.cidr);
    }
  }
  return undefined;
}

/** A reserved range is stepped over in one go, but not beyond where the order wraps around. */
function blocksUntil(cidr: Cidr, end: bigint, order: BlockOrder, place: bigint): bigint {
  const blocks = (end - addressToBigInt(cidrAddress(cidr))) / cidrSize(cidr);
  const untilWrap = order.untilWrap(place);
  return blocks < untilWrap ? blocks : untilWrap;
}

/** The block as ours, if it is or can become so and has room. */
export async function tryClaim(context: Context, search: BlockSearch, cidr: Cidr): Promise<StoredBlock | undefined> {
  try {
    const claimed = await claimBlock(context, cidr, search.owner, search.hostReserved);
    const block = withExpiredCooldownsFreed(context, claimed, search.cooldownSeconds);
    return hasRoom(block, search.reservations) ? block : undefined;
  } catch (error) {
    if (error instanceof BlockClaimed || isConflict(error)) return undefined;
    throw error;
  }
}

/**
 * Out of blocks that all exist, in this host's order: one that is ours since, or one that stands idle.
 * Undefined when each is in use or too young.
 */
export async function claimUsedBlock(
  context: Context,
  search: BlockSearch,
  blocks: readonly StoredBlock[],
): Promise<StoredBlock | undefined> {
  const candidates = blocks.filter(
    (block) => !search.exhausted.has(block.key.cidr) && hasRoom(block, search.reservations),
  );
  for (const block of candidates) {
    const claimed = isOurs(block, search.owner) ? await tryClaim(context, search, block.key.cidr) : undefined;
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
  const holder = parseOwner(affinity);
  try {
    const wasHeld =
      holder !== undefined && (await releaseBlock(context, holder, cidr, { mustBeEmpty: true, sequenceNumber }));
    if (!wasHeld) await context.records.deleteBlock(block); // nobody's, and empty
    context.log.info("took over an empty block", { block: cidr, from: affinity, to: ownerText(search.owner) });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isConflict(error)) return undefined;
    // In Kubernetes, the accounts of a node may not write affinities of another node (ValidatingAdmissionPolicy).
    if (error instanceof Unauthorized) {
      context.log.info("may not take over an empty block", { block: cidr, from: affinity, error });
      return undefined;
    }
    throw error;
  }
  return tryClaim(context, search, cidr);
}

export function orderOf(context: Context, pool: IpPool, owner: Owner): BlockOrder {
  return new BlockOrder(pool, owner.name, () => Math.floor(context.options.random() * 2 ** 31));
}

/** Pools may be made anew with another block size: blocks of the old one are not this pool's. */
export const isBlockOf = (cidr: Cidr, pool: IpPool): boolean =>
  cidr.endsWith(`/${pool.blockSize}`) && ipVersion(cidr) === ipVersion(pool.cidr) && cidrContains(pool.cidr, cidr);

const isOf = (affinity: StoredAffinity, owner: Owner): boolean =>
  affinity.key.host === owner.name && affinity.key.affinityType === owner.type;

const isOurs = (block: StoredBlock, owner: Owner): boolean => block.value.affinity === ownerText(owner);

/** The block as of now: what has cooled down long enough is free again, to be stored with the next write. */
export function withExpiredCooldownsFreed(context: Context, block: StoredBlock, cooldownSeconds: number): StoredBlock {
  const value = freeExpiredCooldowns(block.value, cooldownSeconds, context.nowMs);
  return value === block.value ? block : { ...block, value };
}

/** Whether at least one address could be given automatically. */
export function hasRoom({ value }: StoredBlock, reservations: Reservations): boolean {
  if (reservations.isEmpty) return value.unallocated.length > 0;
  return value.unallocated.some((ordinal) => !reservations.has(addressAt(value, ordinal)));
}
