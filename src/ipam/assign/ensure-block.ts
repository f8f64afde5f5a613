// Making sure a host has a block of its own, without taking an address from it.
import type { Cidr } from "../../lib/ip/ip.ts";
import { resolveAffinity } from "../blocks/affinities.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockLimitReached } from "../errors.ts";
import { claimFreeBlock } from "./find-free-block.ts";
import { type InputsRequest, readInputs, searchIn } from "./assignment-inputs.ts";

/** The first block the host has, or a new one; undefined when the pools are used up. */
export async function ensureBlock(context: Context, request: InputsRequest): Promise<Cidr | undefined> {
  const inputs = await readInputs(context, request);
  for (const affinity of inputs.owned)
    try {
      return (await resolveAffinity(context, affinity, request.hostReserved)).key.cidr;
    } catch (error) {
      if (!(error instanceof BlockClaimed || isConflict(error))) throw error;
    }
  if (inputs.owned.length >= inputs.limit) throw new BlockLimitReached(request.host, inputs.limit);
  const search = { ...searchIn(inputs, request), exhausted: new Set<Cidr>() };
  return (await claimFreeBlock(context, search))?.key.cidr;
}
