// Handles: a handle lists the blocks that contain a container's addresses, so that the addresses are found by the name of the
// handle. The blocks are authoritative. A handle must list every block that contains an address of it, with at least the number
// of its addresses there.
//
// The order of writes guarantees this under concurrency and crashes. To add: read the block, raise the count of the handle,
// write the block. To remove: read the handle, write the block, then set the handle to what the block now contains, but only if
// the handle is unchanged. A concurrent adder either had its block write refused or has changed the handle.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { IpamHandle } from "../../model/index.ts";
import { heldBy } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { HandleLimitReached } from "../errors.ts";
import type { StoredHandle } from "../records.ts";

/** A raised count, and what stood there before (undefined: nothing). */
export interface Raised {
  readonly stored: StoredHandle;
  readonly before: IpamHandle | undefined;
}

/** Announces that `count` more addresses of a block will be held. Only after that block was read. */
export async function raiseHandle(
  context: Context,
  handleId: string,
  raise: { readonly block: Cidr; readonly count: number; readonly maxPerHandle: number | undefined },
): Promise<Raised> {
  const { records } = context;
  const { block, count, maxPerHandle } = raise;
  if (maxPerHandle !== undefined && count > maxPerHandle) throw new HandleLimitReached(handleId, maxPerHandle);
  return retryOnConflict(context, `handle ${handleId}`, async () => {
    const created = await records.createHandle({ handleId, block: { [block]: count }, deleted: false });
    if (created !== undefined) return { stored: created, before: undefined };
    const known = await records.handle(handleId);
    if (known === undefined) return undefined;
    const before = known.value;
    if (maxPerHandle !== undefined && countOf(before, ipVersion(block)) + count > maxPerHandle) {
      // The count may be too high after a crash: only what the blocks hold decides.
      const counts = await recount(context, handleId, Object.keys(before.block) as Cidr[]);
      await settleHandle(context, known, counts);
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

/** How many addresses the handle counts, of one family or of both. */
export const countOf = (handle: IpamHandle, version?: IpVersion): number =>
  Object.entries(handle.block).reduce(
    (sum, [cidr, n]) => sum + (version === undefined || ipVersion(cidr as Cidr) === version ? n : 0),
    0,
  );

/** Takes an announcement back. When the handle has moved on the count stays too high, which is safe. */
export async function lowerHandle(context: Context, raised: Raised): Promise<void> {
  const { records } = context;
  try {
    if (raised.before === undefined) await records.deleteHandle(raised.stored);
    else await records.updateHandle(raised.stored, raised.before);
  } catch (error) {
    if (!isConflict(error)) throw error;
  }
}

/**
 * Sets a handle to what its blocks hold after a release.
 * @param seen the handle as it was before those blocks were written
 */
export async function settleHandle(
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
    counts = await recount(context, seen.value.handleId, [...left.keys()]);
    return undefined;
  });
}

/** What each block holds of a handle, with the block written anew so that whoever read it earlier must look again. */
export async function recount(
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
        return heldBy(block.value, handleId);
      } catch (error) {
        if (isConflict(error)) return undefined;
        throw error;
      }
    });
    counts.set(cidr, count);
  }
  return counts;
}
