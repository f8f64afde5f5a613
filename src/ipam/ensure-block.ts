// Making sure a host has a block of its own, without taking an address from it.
import type { Cidr } from "../lib/ip.ts";
import { resolveAffinity } from "./affinities.ts";
import { type Context, isLost } from "./context.ts";
import { BlockClaimed, BlockLimitReached } from "./errors.ts";
import { claimFreeBlock } from "./free-block.ts";
import { readSurroundings, type SurroundingsRequest, searchIn } from "./surroundings.ts";

/** The first block the host has, or a new one; undefined when the pools are used up. */
export async function ensureBlock(context: Context, request: SurroundingsRequest): Promise<Cidr | undefined> {
  const around = await readSurroundings(context, request);
  for (const affinity of around.owned)
    try {
      return (await resolveAffinity(context, affinity, request.hostReserved)).key.cidr;
    } catch (error) {
      if (!(error instanceof BlockClaimed || isLost(error))) throw error;
    }
  if (around.owned.length >= around.limit) throw new BlockLimitReached(request.host, around.limit);
  const search = { ...searchIn(around, request), exhausted: new Set<Cidr>() };
  return (await claimFreeBlock(context, search))?.key.cidr;
}
