// Addresses that have cooled down are freed by the next write of their block; idle blocks need somebody to write them.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { freeExpiredCooldowns, isCooling, isForgotten } from "../blocks/block.ts";
import { readConfig } from "../config.ts";
import { type Context, isConflict } from "../context.ts";

/** Frees what has cooled down long enough in these blocks (all when none are named); gives back the blocks it wrote. */
export async function collectExpiredCooldowns(context: Context, blocks?: readonly Cidr[]): Promise<readonly Cidr[]> {
  const cooldownSeconds = (await readConfig(context)).ipCooldownSeconds ?? 0;
  const stored =
    blocks === undefined
      ? await context.records.blocks()
      : (await Promise.all(blocks.map((cidr) => context.records.block(cidr)))).flatMap((block) => block ?? []);
  const written: Cidr[] = [];
  for (const block of stored) {
    const value = freeExpiredCooldowns(block.value, cooldownSeconds, context.nowMs);
    if (value === block.value) continue;
    try {
      if (isForgotten(value)) await context.records.deleteBlock(block);
      else await context.records.updateBlock(block, value);
      written.push(block.key.cidr);
    } catch (error) {
      if (!isConflict(error)) throw error; // whoever was faster has freed them too
    }
  }
  return written;
}

/** The block with the addresses free whose cooldown is over. The cooldown is read only if an address is in cooldown. */
export async function withoutExpiredCooldowns(context: Context, block: Block): Promise<Block> {
  if (!block.attributes.some(isCooling)) return block;
  const { ipCooldownSeconds = 0 } = await readConfig(context);
  return freeExpiredCooldowns(block, ipCooldownSeconds, context.nowMs);
}
