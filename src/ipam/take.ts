// Taking addresses out of one block: block and handle in one write, or, where that cannot be, with the handle raised first
// (see handles.ts for why in this order).
import type { Revision, Write } from "../datastore/index.ts";
import type { Cidr, IpAddress } from "../lib/ip.ts";
import { cidrLength } from "../lib/ip.ts";
import { type AllocationOwner, addressAt, type Owner, ownerText, takeFree } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { rested } from "./free-block.ts";
import { countOf, lowerHandle, raiseHandle } from "./handles.ts";
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
  /** How many addresses the handle counts now, these included. It may count too many after a crash, never too few. */
  readonly handleCount?: number;
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
  const together = await writeTogether(context, stored, value, raise);
  if (together !== "step by step") return together;
  const raised =
    handleId === undefined
      ? undefined
      : await raiseHandle(context, handleId, { block: stored.key.cidr, count, maxPerHandle });
  try {
    await context.records.updateBlock(stored, value);
    return raised === undefined ? {} : { handleCount: countOf(raised.stored.value) };
  } catch (error) {
    // Whether an unanswered write arrived is unknown: the handle then stays raised, which a release corrects.
    if (!isLost(error)) throw error;
    if (raised !== undefined) await lowerHandle(context.forCleanUp(), raised);
    return undefined;
  }
}

async function writeTogether(
  context: Context,
  stored: StoredBlock,
  value: Block,
  raise: Raise,
): Promise<Omit<Taken, "addresses"> | undefined | "step by step"> {
  const { records, memory } = context;
  const { handleId, count, maxPerHandle } = raise;
  if (records.store.together === undefined) return "step by step";
  // Most containers get their first address: then the handle is new. The second, of the other family, follows at once.
  const known = handleId === undefined ? undefined : memory.recall.entry({ type: "ipamHandle", handleId })?.stored;
  let handle = known as StoredHandle | undefined;
  let { also } = raise;
  for (let attempt = 0; attempt < 3; attempt++) {
    // Whether a limit allows more is told by what the handle holds.
    if (maxPerHandle !== undefined && (handle !== undefined || count > maxPerHandle)) break;
    const raised = handleId === undefined ? undefined : raisedHandle(handleId, handle, stored.key.cidr, count);
    const outcome = await records.writeBlocks([{ stored, value }], raised, also);
    if (outcome?.done === true)
      return {
        ...(also.length === 0 ? {} : { also: outcome.also }),
        ...(raised === undefined ? {} : { handleCount: count + (handle === undefined ? 0 : countOf(handle.value)) }),
      };
    if (outcome?.inTheWay === "block") return undefined;
    if (outcome?.inTheWay === "others") also = [];
    else if (handleId !== undefined) handle = await records.handle(handleId);
  }
  return "step by step";
}

function raisedHandle(handleId: string, before: StoredHandle | undefined, block: Cidr, count: number): Write {
  const key = { type: "ipamHandle", handleId } as const;
  if (before === undefined)
    return { op: "create", entry: { key, value: { handleId, block: { [block]: count }, deleted: false } } };
  const counts = { ...before.value.block, [block]: (before.value.block[block] ?? 0) + count };
  return { op: "update", entry: { ...before, value: { ...before.value, block: counts } } };
}
