// What every release does besides freeing addresses: it writes or deletes the block, sets the handle to what is left, and
// gives up an empty block whose pool no longer selects its node.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { releaseBlock, parseOwner } from "../blocks/affinities.ts";
import { isForgotten, type Owner } from "../blocks/block.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import { settleHandle } from "../blocks/handles.ts";
import { poolAround, selectsNode } from "../assign/pools.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

/** @returns false if another process wrote the block first */
export async function writeFreed(context: Context, stored: StoredBlock, value: Block): Promise<boolean> {
  try {
    if (isForgotten(value)) await context.records.deleteBlock(stored);
    else await context.records.updateBlock(stored, value);
    return true;
  } catch (error) {
    if (isConflict(error)) return false;
    throw error;
  }
}

/** The addresses are free whatever happens to the handle, so a failure is logged and not thrown. */
export async function settleOrLog(
  context: Context,
  seen: StoredHandle,
  counts: ReadonlyMap<Cidr, number>,
): Promise<void> {
  try {
    await settleHandle(context, seen, counts);
  } catch (error) {
    context.log.warn("handle keeps a count too high", { handle: seen.value.handleId, error });
  }
}

/** Gives up an emptied block whose pool no longer selects its node. Where that cannot be determined, the block stays. */
export async function giveUpIfDeselected(context: Context, block: Block): Promise<void> {
  const owner = parseOwner(block.affinity);
  if (owner?.type !== "host") return;
  try {
    if (!(await isDeselected(context, owner, block.cidr))) return;
    await releaseBlock(context, owner, block.cidr, { mustBeEmpty: true });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isConflict(error)) return;
    context.log.warn("could not give up an emptied block", { block: block.cidr, host: owner.name, error });
  }
}

async function isDeselected(context: Context, owner: Owner, cidr: Cidr): Promise<boolean> {
  const { cache } = context.options;
  const reads = cache?.serves(owner) === true ? cache : context.reads;
  const [pools, labels] = await Promise.all([reads.pools(), reads.nodeLabels(owner.name)]);
  const pool = poolAround(pools, cidr);
  return pool !== undefined && labels !== undefined && !selectsNode(pool, labels);
}
