// Addresses that have cooled down are freed by the next write of their block; idle blocks need somebody to write them.
import type { Cidr } from "../lib/ip.ts";
import type { Block } from "../model/index.ts";
import { freeCold, isCooling, isForgotten } from "./block.ts";
import { readConfig } from "./config.ts";
import { type Context, isLost } from "./context.ts";

/** Frees what has rested long enough in these blocks (all when none are named); gives back the blocks it wrote. */
export async function collectCold(context: Context, blocks?: readonly Cidr[]): Promise<readonly Cidr[]> {
  const cooldownSeconds = (await readConfig(context)).ipCooldownSeconds ?? 0;
  const stored =
    blocks === undefined
      ? await context.records.blocks()
      : (await Promise.all(blocks.map((cidr) => context.records.block(cidr)))).flatMap((block) => block ?? []);
  const written: Cidr[] = [];
  for (const block of stored) {
    const value = freeCold(block.value, cooldownSeconds, context.nowMs);
    if (value === block.value) continue;
    try {
      if (isForgotten(value)) await context.records.deleteBlock(block);
      else await context.records.updateBlock(block, value);
      written.push(block.key.cidr);
    } catch (error) {
      if (!isLost(error)) throw error; // whoever was faster has freed them too
    }
  }
  return written;
}

/** The block with the addresses free whose cooldown is over. The cooldown is read only if an address is in cooldown. */
export async function withoutCold(context: Context, block: Block): Promise<Block> {
  if (!block.attributes.some(isCooling)) return block;
  const { ipCooldownSeconds = 0 } = await readConfig(context);
  return freeCold(block, ipCooldownSeconds, context.nowMs);
}
