// Finding a block nobody has. Affinities are small and name nearly every block there is, so they are looked at first;
// blocks, which carry all allocations, are listed only when that finds nothing.
import {
  addressToBigInt,
  type Cidr,
  cidrAddress,
  cidrContains,
  cidrSize,
  type IpVersion,
  ipVersion,
} from "../lib/ip.ts";
import { claimBlock, claimedAtMs, giveUpBlock, ownerOf } from "./affinities.ts";
import { addressAt, freeCold, type HostReserved, isEmpty, type Owner, ownerText } from "./block.ts";
import { BlockOrder } from "./block-order.ts";
import { type Context, isLost } from "./context.ts";
import { BlockClaimed, BlockNotEmpty } from "./errors.ts";
import type { IpamPool } from "./pools.ts";
import type { StoredAffinity, StoredBlock } from "./records.ts";
import type { Reservations } from "./reservations.ts";

/** An empty block of another host may be taken over once it has been idle this long. */
const RECLAIM_AFTER_MS = 60_000;
/** So many lost claims mean there are blocks without affinity: look at the blocks themselves. */
const LOST_CLAIMS = 8;

export interface BlockSearch {
  readonly pools: readonly IpamPool[];
  readonly owner: Owner;
  readonly version: IpVersion;
  readonly reservations: Reservations;
  /** Blocks of ours that are known to be full. */
  readonly exhausted: ReadonlySet<Cidr>;
  readonly cooldownSeconds: number;
  readonly hostReserved?: HostReserved;
}

/** A block for this owner that has room; undefined when the pools are used up. */
export async function claimFreeBlock(context: Context, search: BlockSearch): Promise<StoredBlock | undefined> {
  const owners = new Map<Cidr, StoredAffinity[]>();
  for (const affinity of await context.records.affinities(search.version)) {
    const known = owners.get(affinity.key.cidr);
    if (known === undefined) owners.set(affinity.key.cidr, [affinity]);
    else known.push(affinity);
  }
  return (await claimByAffinities(context, search, owners)) ?? (await claimByBlocks(context, search, owners));
}

type Owners = ReadonlyMap<Cidr, readonly StoredAffinity[]>;

async function claimByAffinities(
  context: Context,
  search: BlockSearch,
  owners: Owners,
): Promise<StoredBlock | undefined> {
  const taken = new Set(search.exhausted);
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
      const holders = owners.get(cidr);
      if (holders !== undefined && !holders.some((affinity) => isOf(affinity, search.owner))) continue;
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

async function tryClaim(context: Context, search: BlockSearch, cidr: Cidr): Promise<StoredBlock | undefined> {
  try {
    const claimed = await claimBlock(context, cidr, search.owner, search.hostReserved);
    const block = rested(context, claimed, search.cooldownSeconds);
    return hasRoom(block, search.reservations) ? block : undefined;
  } catch (error) {
    if (error instanceof BlockClaimed || isLost(error)) return undefined;
    throw error;
  }
}

/** Every block has an affinity: some may never have been made, some may be ours since, some may stand empty. */
async function claimByBlocks(context: Context, search: BlockSearch, owners: Owners): Promise<StoredBlock | undefined> {
  const listed = await context.records.blocks(search.version);
  const blocks = new Map(listed.map((block) => [block.key.cidr, rested(context, block, search.cooldownSeconds)]));
  const idle: StoredBlock[] = [];
  for (const pool of search.pools) {
    const order = orderOf(context, pool, search.owner);
    const inPool = [...new Set([...owners.keys(), ...blocks.keys()])]
      .filter((cidr) => isBlockOf(cidr, pool) && !search.exhausted.has(cidr) && !search.reservations.covers(cidr))
      .map((cidr) => ({ cidr, place: order.placeOf(cidr) }))
      .sort((a, b) => (a.place < b.place ? -1 : 1));
    for (const { cidr } of inPool) {
      const block = blocks.get(cidr);
      if (block === undefined || (isOurs(block, search.owner) && hasRoom(block, search.reservations))) {
        const claimed = await tryClaim(context, search, cidr);
        if (claimed !== undefined) return claimed;
      } else if (isEmpty(block.value) && hasRoom(block, search.reservations)) idle.push(block);
    }
  }
  for (const block of idle) {
    if (context.nowMs - claimedAtMs(block.value) < RECLAIM_AFTER_MS) continue;
    const claimed = await takeOver(context, search, block, owners);
    if (claimed !== undefined) return claimed;
  }
  return undefined;
}

async function takeOver(
  context: Context,
  search: BlockSearch,
  block: StoredBlock,
  owners: Owners,
): Promise<StoredBlock | undefined> {
  const { cidr } = block.key;
  const { affinity, sequenceNumber } = block.value;
  const holder = owners
    .get(cidr)
    ?.map(ownerOf)
    .find((owner) => ownerText(owner) === affinity);
  try {
    if (holder !== undefined) await giveUpBlock(context, holder, cidr, { mustBeEmpty: true, sequenceNumber });
    else await context.records.deleteBlock(block); // nobody's, and empty
    context.log.info("took over an empty block", { block: cidr, from: affinity, to: ownerText(search.owner) });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isLost(error)) return undefined;
    throw error;
  }
  return tryClaim(context, search, cidr);
}

export function orderOf(context: Context, pool: IpamPool, owner: Owner): BlockOrder {
  return new BlockOrder(pool, owner.name, () => Math.floor(context.options.random() * 2 ** 31));
}

/** Pools may be made anew with another block size: blocks of the old one are not this pool's. */
export const isBlockOf = (cidr: Cidr, pool: IpamPool): boolean =>
  cidr.endsWith(`/${pool.blockSize}`) && ipVersion(cidr) === ipVersion(pool.cidr) && cidrContains(pool.cidr, cidr);

const isOf = (affinity: StoredAffinity, owner: Owner): boolean =>
  affinity.key.host === owner.name && affinity.key.affinityType === owner.type;

const isOurs = (block: StoredBlock, owner: Owner): boolean => block.value.affinity === ownerText(owner);

/** The block as of now: what has cooled down long enough is free again, to be stored with the next write. */
export function rested(context: Context, block: StoredBlock, cooldownSeconds: number): StoredBlock {
  const value = freeCold(block.value, cooldownSeconds, context.nowMs);
  return value === block.value ? block : { ...block, value };
}

/** Whether at least one address could be given automatically. */
export function hasRoom({ value }: StoredBlock, reservations: Reservations): boolean {
  if (reservations.isEmpty) return value.unallocated.length > 0;
  return value.unallocated.some((ordinal) => !reservations.has(addressAt(value, ordinal)));
}
