// Claims and releases many blocks for operators and controllers: all blocks in a prefix, of a host, or of a pool.
import { DatastoreError, NotFound, Unsupported } from "../../datastore/index.ts";
import { type Cidr, cidrContains, cidrLength, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { claimBlock, releaseBlockAffinity, type ReleaseBlocksOptions, blockOwnerOf } from "./affinities.ts";
import type { HostReserved, BlockOwner } from "./block.ts";
import { BlockOrder } from "../assign/block-order.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockTooSmall, IpamError, NotInPool } from "../errors.ts";
import { poolContaining, readPools } from "../assign/pools.ts";
import type { StoredAffinity } from "../records.ts";
import type { IpPool } from "../../model/index.ts";

export interface ClaimResult {
  readonly claimed: readonly Cidr[];
  /** Blocks that have another owner. */
  readonly failed: readonly Cidr[];
}

/** Claims every block of a prefix. The prefix must consist of whole blocks of one pool. */
export async function claimPrefix(
  context: Context,
  cidr: Cidr,
  owner: BlockOwner,
  reserved?: HostReserved,
): Promise<ClaimResult> {
  const blockSize = await blockSizeFor(context, cidr, (pool) => pool.mayAssign);
  const claimed: Cidr[] = [];
  const failed: Cidr[] = [];
  for (const block of new BlockOrder({ cidr, blockSize }, owner.name, () => 0))
    try {
      await claimBlock(context, block, owner, reserved);
      claimed.push(block);
    } catch (error) {
      if (!(error instanceof BlockClaimed)) throw error;
      failed.push(block);
    }
  return { claimed, failed };
}

/** Releases the owner's blocks in a prefix. Blocks of other owners are not changed. */
export async function releasePrefixAffinities(
  context: Context,
  cidr: Cidr,
  owner: BlockOwner,
  options: ReleaseBlocksOptions,
): Promise<void> {
  await blockSizeFor(context, cidr);
  const affinities = await context.records.affinitiesOf(owner, ipVersion(cidr));
  await releaseAffinities(
    context,
    affinities.filter(({ key }) => cidrContains(cidr, key.cidr)),
    options,
  );
}

/** Releases all blocks of the owner, including those of deleted pools. */
export async function releaseHostAffinities(
  context: Context,
  owner: BlockOwner,
  options: ReleaseBlocksOptions,
): Promise<void> {
  await releaseAffinities(context, await context.records.affinitiesOf(owner), options);
}

/** Releases all blocks inside a pool, before it is deleted. Blocks in use stay, without an owner. */
export async function releasePoolAffinities(context: Context, pool: Cidr): Promise<void> {
  const affinities = await context.records.affinities(ipVersion(pool));
  await releaseAffinities(
    context,
    affinities.filter(({ key }) => cidrContains(pool, key.cidr)),
    { mustBeEmpty: false },
  );
}

/** Releases all blocks of a node that left the cluster. Addresses in use stay allocated. An unknown host is not an error. */
export async function removeHost(context: Context, owner: BlockOwner): Promise<void> {
  await releaseHostAffinities(context, owner, { mustBeEmpty: false });
  if (owner.type === "virtual") return;
  try {
    await context.records.store.delete({ type: "ipamHost", host: owner.name }, context.records.call);
  } catch (error) {
    if (!(error instanceof NotFound || error instanceof Unsupported)) throw error;
  }
}

/** Tries to release all blocks. If some cannot be released, the last error is thrown at the end. */
async function releaseAffinities(
  context: Context,
  affinities: readonly StoredAffinity[],
  options: ReleaseBlocksOptions,
): Promise<void> {
  let last: unknown;
  for (const affinity of affinities)
    try {
      await releaseBlockAffinity(context, blockOwnerOf(affinity), affinity.key.cidr, options);
    } catch (error) {
      if (error instanceof BlockClaimed || isConflict(error)) continue; // it has another owner now
      if (!(error instanceof IpamError || error instanceof DatastoreError)) throw error;
      last = error;
    }
  if (last !== undefined) throw last;
}

async function blockSizeFor(
  context: Context,
  cidr: Cidr,
  isUsable: (pool: IpPool) => boolean = () => true,
): Promise<number> {
  const version: IpVersion = ipVersion(cidr);
  const pool = poolContaining((await readPools(context.records, version)).filter(isUsable), cidr);
  if (pool === undefined) throw new NotInPool(cidr);
  if (cidrLength(cidr) > pool.blockSize) throw new BlockTooSmall(cidr, pool.blockSize);
  return pool.blockSize;
}
