// Frees addresses whose cooldown has expired. The next write of a block does this too; blocks that are not written otherwise
// need `collectExpiredCooldowns`.
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { freeExpiredCooldowns, isCooling, isUnownedAndEmpty } from "../blocks/block.ts";
import { readConfig } from "../config.ts";
import { type Context, isConflict } from "../context.ts";

/**
 * Frees addresses whose cooldown has expired.
 * @param blocks by default all
 * @returns the blocks that were written
 */
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
      if (isUnownedAndEmpty(value)) await context.records.deleteBlock(block);
      else await context.records.updateBlock(block, value);
      written.push(block.key.cidr);
    } catch (error) {
      if (!isConflict(error)) throw error; // the process that wrote the block first has freed them too
    }
  }
  return written;
}

/** Returns the block with expired cooldowns freed. The setting is read only if the block has an address in cooldown. */
export async function withoutExpiredCooldowns(context: Context, block: Block): Promise<Block> {
  if (!block.attributes.some(isCooling)) return block;
  const { ipCooldownSeconds = 0 } = await readConfig(context);
  return freeExpiredCooldowns(block, ipCooldownSeconds, context.nowMs);
}
