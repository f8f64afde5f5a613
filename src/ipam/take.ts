// Taking addresses out of one block, with the handle raised first (see handles.ts for why in this order).
import type { Cidr, IpAddress } from "../lib/ip.ts";
import { cidrLength } from "../lib/ip.ts";
import { type AllocationOwner, addressAt, type Owner, ownerText, takeFree } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { rested } from "./free-block.ts";
import { lowerHandle, raiseHandle } from "./handles.ts";
import type { StoredBlock } from "./records.ts";
import type { Block } from "../model/index.ts";

export interface Taking {
  readonly count: number;
  readonly for: AllocationOwner;
  readonly isReserved: (address: IpAddress) => boolean;
  readonly cooldownSeconds: number;
  /** Strict affinity: only from a block of this owner. */
  readonly onlyOf?: Owner;
  readonly maxPerHandle?: number;
}

/** Up to `count` addresses in CIDR form with the block's length; none when the block is full, gone or no longer ours. */
export async function takeFromBlock(context: Context, first: StoredBlock, taking: Taking): Promise<readonly Cidr[]> {
  let known: StoredBlock | undefined = first;
  return untilWon(context, `block ${first.key.cidr}`, async () => {
    const stored = known ?? (await context.records.block(first.key.cidr));
    known = undefined;
    if (stored === undefined) return [];
    if (taking.onlyOf !== undefined && stored.value.affinity !== ownerText(taking.onlyOf)) return [];
    const block = rested(context, stored, taking.cooldownSeconds);
    const taken = takeFree(block.value, taking.count, taking.for, taking.isReserved);
    if (taken.ordinals.length === 0) return [];
    const raise = {
      handleId: taking.for.handleId,
      count: taken.ordinals.length,
      maxPerHandle: taking.maxPerHandle,
    };
    if (!(await writeTaken(context, block, taken.block, raise))) return undefined;
    const length = cidrLength(first.key.cidr);
    return taken.ordinals.map((ordinal) => `${addressAt(block.value, ordinal)}/${length}` as Cidr);
  });
}

/** Writes a block that holds some more addresses of a handle; false when the block was written by another first. */
export async function writeTaken(
  context: Context,
  stored: StoredBlock,
  value: Block,
  raise: {
    readonly handleId: string | undefined;
    readonly count: number;
    readonly maxPerHandle: number | undefined;
  },
): Promise<boolean> {
  const { handleId, count, maxPerHandle } = raise;
  if (handleId !== undefined && count <= (maxPerHandle ?? count)) {
    // Most containers get their first address: then the handle is new, and one write does for both.
    const handle = { handleId, block: { [stored.key.cidr]: count }, deleted: false };
    const outcome = await context.records.takeTogether(stored, value, handle);
    if (outcome === "done") return true;
    if (outcome === "block") return false;
  }
  const raised =
    handleId === undefined
      ? undefined
      : await raiseHandle(context, handleId, { block: stored.key.cidr, count, maxPerHandle });
  try {
    await context.records.updateBlock(stored, value);
    return true;
  } catch (error) {
    // Whether an unanswered write arrived is unknown: the handle then stays raised, which a release corrects.
    if (!isLost(error)) throw error;
    if (raised !== undefined) await lowerHandle(context.forCleanUp(), raised);
    return false;
  }
}
