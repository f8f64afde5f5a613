// What every release does besides freeing: blocks are written or forgotten, handles brought to what is left, and a block
// that is empty now given up when its pool no longer selects its node.
import { DatastoreError } from "../datastore/index.ts";
import type { Cidr } from "../lib/ip.ts";
import type { Block } from "../model/index.ts";
import { giveUpBlock, parseOwner } from "./affinities.ts";
import { isForgotten } from "./block.ts";
import { type Context, isLost } from "./context.ts";
import { BadPool, BlockClaimed, BlockNotEmpty } from "./errors.ts";
import { settleHandle } from "./handles.ts";
import { type IpamPool, poolAround, readPools, selectsNode } from "./pools.ts";
import type { StoredBlock, StoredHandle } from "./records.ts";

/** False when another wrote it first. */
export async function writeFreed(context: Context, stored: StoredBlock, value: Block): Promise<boolean> {
  try {
    if (isForgotten(value)) await context.records.deleteBlock(stored);
    else await context.records.updateBlock(stored, value);
    return true;
  } catch (error) {
    if (isLost(error)) return false;
    throw error;
  }
}

/** The addresses are free whatever becomes of the handle, so a failure here is told and not thrown. */
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

/** An emptied block whose pool no longer selects its node is not kept for it. */
export async function giveUpIfDeselected(context: Context, block: Block, pools: readonly IpamPool[]): Promise<void> {
  if (await isDeselected(context, block, pools)) await giveUpEmptied(context, block);
}

/** Whether a node has a block its pool no longer gives it. Where that cannot be told, the block stays. */
export async function isDeselected(context: Context, block: Block, known?: readonly IpamPool[]): Promise<boolean> {
  const owner = parseOwner(block.affinity);
  if (owner?.type !== "host") return false;
  try {
    const [pools, node] = await Promise.all([
      known ?? readPools(context.records),
      context.records.resource("Node", owner.name),
    ]);
    const pool = poolAround(pools, block.cidr);
    return pool !== undefined && node !== undefined && !selectsNode(pool, node.metadata.labels ?? {});
  } catch (error) {
    if (!(error instanceof BadPool || error instanceof DatastoreError)) throw error;
    context.log.warn("cannot tell whether a node keeps its emptied block", { block: block.cidr, error });
    return false;
  }
}

export async function giveUpEmptied(context: Context, block: Block): Promise<void> {
  const owner = parseOwner(block.affinity);
  if (owner === undefined) return;
  try {
    await giveUpBlock(context, owner, block.cidr, { mustBeEmpty: true });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isLost(error)) return;
    context.log.warn("could not give up an emptied block", { block: block.cidr, host: owner.name, error });
  }
}
