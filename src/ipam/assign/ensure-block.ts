// Ensures that a host owns a block, without assigning an address from it.
import type { Cidr } from "../../lib/ip/ip.ts";
import { resolveAffinity } from "../blocks/affinities.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockLimitReached } from "../errors.ts";
import { claimFreeBlock } from "./find-free-block.ts";
import { type InputsRequest, readInputs, searchIn } from "./assignment-inputs.ts";

/** Returns the host's first block, or a new one; undefined if all blocks of the pools are claimed. */
export async function ensureBlock(context: Context, request: InputsRequest): Promise<Cidr | undefined> {
  const inputs = await readInputs(context, request);
  for (const affinity of inputs.ownAffinities)
    try {
      return (await resolveAffinity(context, affinity, request.hostReserved)).key.cidr;
    } catch (error) {
      if (!(error instanceof BlockClaimed || isConflict(error))) throw error;
    }
  if (inputs.ownAffinities.length >= inputs.maxBlocks) throw new BlockLimitReached(request.host, inputs.maxBlocks);
  const search = { ...searchIn(inputs, request), exhausted: new Set<Cidr>() };
  return (await claimFreeBlock(context, search))?.key.cidr;
}
