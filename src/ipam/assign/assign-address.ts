// Assigns one address that the request names. Selectors, reservations and the assignment mode of pools do not apply to it.
//
// The limit of blocks per host applies, unlike in Calico: a pod's owner may name an address in every block of a pool, and
// without a limit one node would claim them all, so that with strict affinity other nodes get no addresses.
import { type IpAddress, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import { claimBlock } from "../blocks/affinities.ts";
import {
  type HandleAndAttributes,
  allocationAt,
  isCooling,
  ordinalOf,
  formatBlockOwner,
  sameHandle,
  takeOrdinal,
} from "../blocks/block.ts";
import { readConfig } from "../config.ts";
import { type Context, retryOnConflict } from "../context.ts";
import {
  AddressTaken,
  BlockClaimed,
  BlockLimitReached,
  BlockOwnedByOther,
  NotInPool,
  UseNotAllowed,
} from "../errors.ts";
import { withExpiredCooldownsFreed } from "./find-free-block.ts";
import { countOf } from "../blocks/handles.ts";
import { type PoolUse, poolContaining, readPools } from "./pools.ts";
import { blockLimit, blockOwnerFor } from "./assignment-inputs.ts";
import { writeAllocation } from "./take-from-block.ts";

export interface AssignAddressRequest extends HandleAndAttributes {
  readonly address: IpAddress;
  readonly host: string;
  /** Checked against the pool when given. */
  readonly use?: PoolUse;
  /**
   * Maximum number of the handle's addresses of this family; beyond it, `HandleLimitReached` is thrown. If set, it is not an
   * error that the handle already has the address.
   */
  readonly maxPerHandle?: number;
}

/** @returns the handle's address count if it was incremented. After a crash it may be too high, never too low. */
export async function assignAddress(context: Context, request: AssignAddressRequest): Promise<number | undefined> {
  const { address, handleId, attributes } = request;
  const owner = blockOwnerFor(request.host, request.use ?? "Workload");
  const [config, pools] = await Promise.all([readConfig(context), readPools(context.records, ipVersion(address))]);
  const pool = poolContaining(
    pools.filter((candidate) => candidate.mayAssign),
    address,
  );
  if (pool === undefined) throw new NotInPool(address);
  if (request.use !== undefined && !pool.allowedUses.includes(request.use))
    throw new UseNotAllowed(address, pool.name, request.use);
  const cidr = maskCidr(address, pool.blockSize);
  // Addresses of load balancers and tunnels are named by administrators and by calico-ts.
  const isWorkload = (request.use ?? "Workload") === "Workload";
  const limit = isWorkload ? blockLimit(undefined, config.maxBlocksPerHost) : Number.POSITIVE_INFINITY;

  const { handle } = await retryOnConflict(context, `address ${address}`, async () => {
    const known = await context.records.block(cidr);
    const stored = known ?? (await claimOrRead(context, cidr, owner, limit));
    if (stored === undefined) return undefined;
    if (config.strictAffinity && stored.value.affinity !== formatBlockOwner(owner))
      throw new BlockOwnedByOther(cidr, stored.value.affinity);
    const block = withExpiredCooldownsFreed(context, stored, config.ipCooldownSeconds ?? 0);
    const ordinal = ordinalOf(block.value, address);
    const held = allocationAt(block.value, ordinal);
    if (held !== undefined) {
      if (request.maxPerHandle !== undefined && handleId !== undefined && sameHandle(held.handleId, handleId))
        return { handle: undefined };
      throw new AddressTaken(address, held.handleId, isCooling(held) ? "Address is in cooldown" : undefined);
    }
    const taken = takeOrdinal(block.value, ordinal, { handleId, attributes });
    const increment = { handleId, count: 1, maxPerHandle: request.maxPerHandle, handle: undefined, extraWrites: [] };
    return writeAllocation(context, block, taken, increment);
  });
  return handle && countOf(handle.value);
}

/** Claims a block that does not exist yet. If another host creates it first, returns that host's block. */
async function claimOrRead(
  context: Context,
  cidr: Parameters<typeof claimBlock>[1],
  owner: Parameters<typeof claimBlock>[2],
  limit: number,
) {
  const owned = await context.records.affinitiesOf(owner, ipVersion(cidr));
  // The block that this host has claimed but not yet created counts as well, and must still be created.
  if (owned.length >= limit && !owned.some(({ key }) => key.cidr === cidr))
    throw new BlockLimitReached(owner.name, limit);
  try {
    return await claimBlock(context, cidr, owner);
  } catch (error) {
    if (error instanceof BlockClaimed) return context.records.block(cidr);
    throw error;
  }
}
