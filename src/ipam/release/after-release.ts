// Completes a release after addresses were freed in memory: writes or deletes the block, updates the handle's counts, and
// releases an empty block whose pool no longer selects its node.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { releaseBlockAffinity, parseBlockOwner } from "../blocks/affinities.ts";
import { isUnownedAndEmpty, type BlockOwner } from "../blocks/block.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import { setHandleCounts } from "../blocks/handles.ts";
import { poolContaining, selectsNode } from "../assign/pools.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

/** @returns false if another process wrote the block first */
export async function writeFreed(context: Context, stored: StoredBlock, value: Block): Promise<boolean> {
  try {
    if (isUnownedAndEmpty(value)) await context.records.deleteBlock(stored);
    else await context.records.updateBlock(stored, value);
    return true;
  } catch (error) {
    if (isConflict(error)) return false;
    throw error;
  }
}

/** Updates the handle's counts. The addresses are already free, so a failure is logged and not thrown. */
export async function setHandleCountsOrLog(
  context: Context,
  seen: StoredHandle,
  counts: ReadonlyMap<Cidr, number>,
): Promise<void> {
  try {
    await setHandleCounts(context, seen, counts);
  } catch (error) {
    context.log.warn("could not update a handle; its address count stays too high", {
      handle: seen.value.handleId,
      error,
    });
  }
}

/** Releases an emptied block whose pool no longer selects its node. If that cannot be determined, the block is kept. */
export async function releaseBlockIfDeselected(context: Context, block: Block): Promise<void> {
  const owner = parseBlockOwner(block.affinity);
  if (owner?.type !== "host") return;
  try {
    if (!(await isDeselected(context, owner, block.cidr))) return;
    await releaseBlockAffinity(context, owner, block.cidr, { mustBeEmpty: true });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isConflict(error)) return;
    context.log.warn("could not release an emptied block", { block: block.cidr, host: owner.name, error });
  }
}

async function isDeselected(context: Context, owner: BlockOwner, cidr: Cidr): Promise<boolean> {
  const { cache } = context.options;
  const reads = cache?.isUsableFor(owner) === true ? cache : context.reads;
  const [pools, labels] = await Promise.all([reads.pools(), reads.nodeLabels(owner.name)]);
  const pool = poolContaining(pools, cidr);
  return pool !== undefined && labels !== undefined && !selectsNode(pool, labels);
}
