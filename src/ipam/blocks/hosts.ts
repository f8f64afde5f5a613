// Ownership of blocks as operators and controllers handle it: claim or give up what lies in a prefix, all a host has,
// all of a pool.
import { DatastoreError, NotFound, Unsupported } from "../../datastore/index.ts";
import { type Cidr, cidrContains, cidrLength, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { claimBlock, releaseBlock, type GivingUp, ownerOf } from "./affinities.ts";
import type { HostReserved, Owner } from "./block.ts";
import { BlockOrder } from "../assign/block-order.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockTooSmall, IpamError, NotInPool } from "../errors.ts";
import { poolAround, readPools } from "../assign/pools.ts";
import type { StoredAffinity } from "../records.ts";
import type { IpPool } from "../../model/index.ts";

export interface ClaimResult {
  readonly claimed: readonly Cidr[];
  /** Belong to somebody else. */
  readonly failed: readonly Cidr[];
}

/** Claims every block of a prefix, which must be whole blocks of one pool. */
export async function claimPrefix(
  context: Context,
  cidr: Cidr,
  owner: Owner,
  reserved?: HostReserved,
): Promise<ClaimResult> {
  const blockSize = await blockSizeAround(context, cidr, (pool) => pool.mayAssign);
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

/** Gives up the owner's blocks in a prefix; what is not its own is left alone. */
export async function giveUpPrefix(context: Context, cidr: Cidr, owner: Owner, options: GivingUp): Promise<void> {
  await blockSizeAround(context, cidr);
  const affinities = await context.records.affinitiesOf(owner, ipVersion(cidr));
  await giveUpAll(
    context,
    affinities.filter(({ key }) => cidrContains(cidr, key.cidr)),
    options,
  );
}

/** Gives up everything the owner has, in pools that are gone too. */
export async function giveUpHost(context: Context, owner: Owner, options: GivingUp): Promise<void> {
  await giveUpAll(context, await context.records.affinitiesOf(owner), options);
}

/** Ends all ownership inside a pool: what deleting it needs. Blocks in use stay, nobody's. */
export async function giveUpPool(context: Context, pool: Cidr): Promise<void> {
  const affinities = await context.records.affinities(ipVersion(pool));
  await giveUpAll(
    context,
    affinities.filter(({ key }) => cidrContains(pool, key.cidr)),
    { mustBeEmpty: false },
  );
}

/** A node leaves: its blocks become nobody's, addresses in use stay. A host that never was is fine. */
export async function removeHost(context: Context, owner: Owner): Promise<void> {
  await giveUpHost(context, owner, { mustBeEmpty: false });
  if (owner.type === "virtual") return;
  try {
    await context.records.store.delete({ type: "ipamHost", host: owner.name }, context.records.call);
  } catch (error) {
    if (!(error instanceof NotFound || error instanceof Unsupported)) throw error;
  }
}

/** As many as possible; the last refusal is thrown when all have been tried. */
async function giveUpAll(context: Context, affinities: readonly StoredAffinity[], options: GivingUp): Promise<void> {
  let last: unknown;
  for (const affinity of affinities)
    try {
      await releaseBlock(context, ownerOf(affinity), affinity.key.cidr, options);
    } catch (error) {
      if (error instanceof BlockClaimed || isConflict(error)) continue; // not ours any more
      if (!(error instanceof IpamError || error instanceof DatastoreError)) throw error;
      last = error;
    }
  if (last !== undefined) throw last;
}

async function blockSizeAround(
  context: Context,
  cidr: Cidr,
  serves: (pool: IpPool) => boolean = () => true,
): Promise<number> {
  const version: IpVersion = ipVersion(cidr);
  const pool = poolAround((await readPools(context.records, version)).filter(serves), cidr);
  if (pool === undefined) throw new NotInPool(cidr);
  if (cidrLength(cidr) > pool.blockSize) throw new BlockTooSmall(cidr, pool.blockSize);
  return pool.blockSize;
}
