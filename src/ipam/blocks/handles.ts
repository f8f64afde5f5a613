// Maintains handles. A handle counts a container's addresses per block, so that the addresses can be found by handle ID. The
// blocks are authoritative. Invariant: a handle lists every block that contains one of its addresses, with at least the number
// of its addresses there.
//
// The order of writes guarantees this under concurrency and crashes. To add: read the block, increment the count of the handle,
// write the block. To remove: read the handle, write the block, then set the handle's count to what the block now contains, but
// only if the handle is unchanged. A concurrent addition either had its block write rejected or has changed the handle.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { IpamHandle } from "../../model/index.ts";
import { countByHandle } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { HandleLimitReached } from "../errors.ts";
import type { StoredHandle } from "../records.ts";

export interface IncrementedHandle {
  readonly stored: StoredHandle;
  /** Undefined if the increment created the handle. */
  readonly before: IpamHandle | undefined;
}

/**
 * Adds `count` to the handle's count for a block. The block must be read before and written afterwards.
 * @throws HandleLimitReached
 */
export async function incrementHandle(
  context: Context,
  handleId: string,
  increment: { readonly block: Cidr; readonly count: number; readonly maxPerHandle: number | undefined },
): Promise<IncrementedHandle> {
  const { records } = context;
  const { block, count, maxPerHandle } = increment;
  if (maxPerHandle !== undefined && count > maxPerHandle) throw new HandleLimitReached(handleId, maxPerHandle);
  return retryOnConflict(context, `handle ${handleId}`, async () => {
    const created = await records.createHandle({ handleId, block: { [block]: count }, deleted: false });
    if (created !== undefined) return { stored: created, before: undefined };
    const known = await records.handle(handleId);
    if (known === undefined) return undefined;
    const before = known.value;
    if (maxPerHandle !== undefined && countOf(before, ipVersion(block)) + count > maxPerHandle) {
      // The count may be too high after a crash, so the blocks decide.
      const counts = await recountHandle(context, handleId, Object.keys(before.block) as Cidr[]);
      await setHandleCounts(context, known, counts);
      const held = [...counts].filter(([cidr]) => ipVersion(cidr) === ipVersion(block));
      if (held.reduce((sum, [, n]) => sum + n, count) > maxPerHandle)
        throw new HandleLimitReached(handleId, maxPerHandle);
      return undefined;
    }
    const value = { ...before, block: { ...before.block, [block]: (before.block[block] ?? 0) + count } };
    try {
      return { stored: await records.updateHandle(known, value), before };
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  });
}

/** Returns the handle's address count, of one family or of both. */
export const countOf = (handle: IpamHandle, version?: IpVersion): number =>
  Object.entries(handle.block).reduce(
    (sum, [cidr, n]) => sum + (version === undefined || ipVersion(cidr as Cidr) === version ? n : 0),
    0,
  );

/** Reverts an increment. If the handle has changed since, its count stays too high, which is safe. */
export async function revertHandleIncrement(context: Context, incremented: IncrementedHandle): Promise<void> {
  const { records } = context;
  try {
    if (incremented.before === undefined) await records.deleteHandle(incremented.stored);
    else await records.updateHandle(incremented.stored, incremented.before);
  } catch (error) {
    if (!isConflict(error)) throw error;
  }
}

/**
 * Sets a handle's counts after a release. Deletes the handle if all counts are 0.
 * @param seen the handle as read before its blocks were written
 * @param left the number of its addresses left in each of these blocks
 */
export async function setHandleCounts(
  context: Context,
  seen: StoredHandle,
  left: ReadonlyMap<Cidr, number>,
): Promise<void> {
  const { records } = context;
  let handle = seen;
  let counts = left;
  await retryOnConflict(context, `handle ${seen.value.handleId}`, async () => {
    try {
      const block = { ...handle.value.block };
      for (const [cidr, count] of counts)
        if (count > 0) block[cidr] = count;
        else delete block[cidr];
      if (Object.keys(block).length === 0) await records.deleteHandle(handle);
      else await records.updateHandle(handle, { ...handle.value, block });
      return true;
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
    const again = await records.handle(seen.value.handleId);
    if (again === undefined) return true;
    handle = again;
    counts = await recountHandle(context, seen.value.handleId, [...left.keys()]);
    return undefined;
  });
}

/**
 * Counts a handle's addresses in each block. Writes the block unchanged, so that a concurrent assignment that has read it
 * conflicts.
 */
export async function recountHandle(
  context: Context,
  handleId: string,
  blocks: readonly Cidr[],
): Promise<ReadonlyMap<Cidr, number>> {
  const counts = new Map<Cidr, number>();
  for (const cidr of blocks) {
    const count = await retryOnConflict(context, `block ${cidr}`, async () => {
      const block = await context.records.block(cidr);
      if (block === undefined) return 0;
      try {
        await context.records.updateBlock(block, block.value);
        return countByHandle(block.value, handleId);
      } catch (error) {
        if (isConflict(error)) return undefined;
        throw error;
      }
    });
    counts.set(cidr, count);
  }
  return counts;
}
