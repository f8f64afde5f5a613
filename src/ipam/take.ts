// Taking addresses out of one block: block and handle in one write, or, where that cannot be, with the handle raised first
// (see handles.ts for why in this order).
import type { Revision, Write } from "../datastore/index.ts";
import type { Cidr, IpAddress } from "../lib/ip.ts";
import { cidrLength } from "../lib/ip.ts";
import { type AllocationOwner, addressAt, type Owner, ownerText, takeFree } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { rested } from "./free-block.ts";
import { lowerHandle, raiseHandle } from "./handles.ts";
import type { StoredBlock, StoredHandle } from "./records.ts";
import type { Block } from "../model/index.ts";

export interface Taking {
  readonly count: number;
  readonly for: AllocationOwner;
  readonly isReserved: (address: IpAddress) => boolean;
  readonly cooldownSeconds: number;
  /** Strict affinity: only from a block of this owner. */
  readonly onlyOf?: Owner;
  readonly maxPerHandle?: number;
  /** To be written with all of them, should they come from one block. */
  readonly also?: Also;
}

/** Writes that go with addresses, once these are chosen. */
export type Also = (addresses: readonly Cidr[]) => Promise<readonly Write[]>;

export interface Taken {
  /** In CIDR form with the block's length. */
  readonly addresses: readonly Cidr[];
  /** The revisions of what was written with them, if it was. */
  readonly also?: readonly Revision[];
}

const NOTHING: Taken = { addresses: [] };

/** Up to `count` addresses; none when the block is full, gone or no longer ours. */
export async function takeFromBlock(context: Context, first: StoredBlock, taking: Taking): Promise<Taken> {
  let known: StoredBlock | undefined = first;
  return untilWon(context, `block ${first.key.cidr}`, async () => {
    const stored = known ?? (await context.records.block(first.key.cidr));
    known = undefined;
    if (stored === undefined) return NOTHING;
    if (taking.onlyOf !== undefined && stored.value.affinity !== ownerText(taking.onlyOf)) return NOTHING;
    const block = rested(context, stored, taking.cooldownSeconds);
    const taken = takeFree(block.value, taking.count, taking.for, taking.isReserved);
    if (taken.ordinals.length === 0) return NOTHING;
    const length = cidrLength(first.key.cidr);
    const addresses = taken.ordinals.map((ordinal) => `${addressAt(block.value, ordinal)}/${length}` as Cidr);
    const written = await writeTaken(context, block, taken.block, {
      handleId: taking.for.handleId,
      count: addresses.length,
      maxPerHandle: taking.maxPerHandle,
      also: addresses.length === taking.count ? ((await taking.also?.(addresses)) ?? []) : [],
    });
    return written && { addresses, ...written };
  });
}

export interface Raise {
  readonly handleId: string | undefined;
  readonly count: number;
  readonly maxPerHandle: number | undefined;
  /** To be written with them, if that can be. */
  readonly also: readonly Write[];
}

/** Writes a block that holds some more addresses of a handle; undefined when the block was written by another first. */
export async function writeTaken(
  context: Context,
  stored: StoredBlock,
  value: Block,
  raise: Raise,
): Promise<Omit<Taken, "addresses"> | undefined> {
  const { handleId, count, maxPerHandle } = raise;
  const handle = handleWrite(context, stored.key.cidr, raise);
  for (const also of raise.also.length === 0 ? [[]] : [raise.also, []]) {
    if (handle === "unclear") break;
    const outcome = await context.records.writeBlocks([{ stored, value }], handle, also);
    if (outcome?.done === true) return also.length === 0 ? {} : { also: outcome.also };
    if (outcome?.inTheWay === "block") return undefined;
    if (outcome?.inTheWay !== "others") break;
  }
  const raised =
    handleId === undefined
      ? undefined
      : await raiseHandle(context, handleId, { block: stored.key.cidr, count, maxPerHandle });
  try {
    await context.records.updateBlock(stored, value);
    return {};
  } catch (error) {
    // Whether an unanswered write arrived is unknown: the handle then stays raised, which a release corrects.
    if (!isLost(error)) throw error;
    if (raised !== undefined) await lowerHandle(context.forCleanUp(), raised);
    return undefined;
  }
}

/**
 * Most containers get their first address: then the handle is new. For the second, of the other family, we have just
 * written it ourselves. Whether a limit allows more is only known when the handle is read.
 */
function handleWrite(context: Context, block: Cidr, raise: Raise): Write | undefined | "unclear" {
  const { handleId, count, maxPerHandle } = raise;
  if (handleId === undefined) return undefined;
  const key = { type: "ipamHandle", handleId } as const;
  const known = context.memory.recall.entry(key)?.stored as StoredHandle | undefined;
  if (known === undefined)
    return count <= (maxPerHandle ?? count)
      ? { op: "create", entry: { key, value: { handleId, block: { [block]: count }, deleted: false } } }
      : "unclear";
  if (maxPerHandle !== undefined) return "unclear";
  const counts = { ...known.value.block, [block]: (known.value.block[block] ?? 0) + count };
  return { op: "update", entry: { ...known, value: { ...known.value, block: counts } } };
}
