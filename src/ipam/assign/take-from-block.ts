// Takes addresses from one block. The compare-and-swap of the block is the only concurrency control: if another process
// wrote the block after it was read, the write is rejected, the block is read again and the decision is repeated.
//
// Block, handle and the caller's own writes are one transaction. If the datastore has no transactions, the handle is
// incremented first (blocks/handles.ts explains this order), and the caller must do its own writes.
import type { Revision, Write } from "../../datastore/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { cidrLength } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { type HandleAndAttributes, addressAt, type BlockOwner, formatBlockOwner, takeFree } from "../blocks/block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { ExtraWritesConflict } from "../errors.ts";
import { withExpiredCooldownsFreed } from "./find-free-block.ts";
import { revertHandleIncrement, incrementHandle } from "../blocks/handles.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface TakeRequest {
  readonly count: number;
  readonly allocation: HandleAndAttributes;
  readonly isReserved: (address: IpAddress) => boolean;
  readonly cooldownSeconds: number;
  /** Take only from a block of this owner, for example because of strict affinity. */
  readonly requiredOwner?: BlockOwner;
  readonly maxPerHandle?: number;
  /** The handle as this caller wrote it last. By default the handle is assumed not to exist; if it does, it is read. */
  readonly handle?: StoredHandle;
  /** Written only if all addresses come from this block. */
  readonly extraWrites?: ExtraWrites;
}

/** Returns the writes that belong to the addresses, such as the workload endpoint that uses them. */
export type ExtraWrites = (addresses: readonly Cidr[]) => readonly Write[];

export interface TakeResult {
  /** In CIDR form with the block's length. */
  readonly addresses: readonly Cidr[];
  /** The revisions of the extra writes, if they were done. */
  readonly extraRevisions?: readonly Revision[];
  /** The handle after the write. It may count too many addresses after a crash, never too few. */
  readonly handle?: StoredHandle;
}

const NOTHING: TakeResult = { addresses: [] };

/**
 * Takes up to `count` addresses; none if the block is full, deleted or does not have the required owner.
 * @param first the block as last read; it is read again after a conflict
 * @throws ExtraWritesConflict
 */
export async function takeFromBlock(context: Context, first: StoredBlock, taking: TakeRequest): Promise<TakeResult> {
  let known: StoredBlock | undefined = first;
  return retryOnConflict(context, `block ${first.key.cidr}`, async () => {
    const stored = known ?? (await context.records.block(first.key.cidr));
    known = undefined;
    if (stored === undefined) return NOTHING;
    if (taking.requiredOwner !== undefined && stored.value.affinity !== formatBlockOwner(taking.requiredOwner))
      return NOTHING;
    const block = withExpiredCooldownsFreed(context, stored, taking.cooldownSeconds);
    const taken = takeFree(block.value, taking.count, taking.allocation, taking.isReserved);
    if (taken.ordinals.length === 0) return NOTHING;
    const length = cidrLength(first.key.cidr);
    const addresses = taken.ordinals.map((ordinal) => `${addressAt(block.value, ordinal)}/${length}` as Cidr);
    const written = await writeAllocation(context, block, taken.block, {
      handleId: taking.allocation.handleId,
      count: addresses.length,
      maxPerHandle: taking.maxPerHandle,
      handle: taking.handle,
      extraWrites: addresses.length === taking.count ? (taking.extraWrites?.(addresses) ?? []) : [],
    });
    return written && { addresses, ...written };
  });
}

/** The handle update and extra writes that belong to `count` newly allocated addresses. */
export interface HandleIncrement {
  readonly handleId: string | undefined;
  readonly count: number;
  readonly maxPerHandle: number | undefined;
  readonly handle: StoredHandle | undefined;
  readonly extraWrites: readonly Write[];
}

/** @returns undefined if another process wrote the block first */
export async function writeAllocation(
  context: Context,
  stored: StoredBlock,
  value: Block,
  increment: HandleIncrement,
): Promise<Omit<TakeResult, "addresses"> | undefined> {
  const { handleId, count, maxPerHandle } = increment;
  const outcome = await transactAllocation(context, stored, value, increment);
  if (outcome !== "write separately") return outcome;
  const incremented =
    handleId === undefined
      ? undefined
      : await incrementHandle(context, handleId, { block: stored.key.cidr, count, maxPerHandle });
  try {
    await context.records.updateBlock(stored, value);
    return { handle: incremented?.stored };
  } catch (error) {
    // If a write got no reply, it is unknown whether it was done. The handle then stays incremented; a release corrects it.
    if (!isConflict(error)) throw error;
    if (incremented !== undefined) await revertHandleIncrement(context.forCleanUp(), incremented);
    return undefined;
  }
}

const TRANSACTION_ATTEMPTS = 3;

/** Writes block, handle and extra writes in one transaction; undefined if another process wrote the block first. */
async function transactAllocation(
  context: Context,
  stored: StoredBlock,
  value: Block,
  increment: HandleIncrement,
): Promise<Omit<TakeResult, "addresses"> | undefined | "write separately"> {
  const { records } = context;
  const { handleId, count, maxPerHandle, extraWrites } = increment;
  let { handle } = increment; // usually undefined: the first address of a container creates its handle
  for (let attempt = 0; attempt < TRANSACTION_ATTEMPTS; attempt++) {
    // Only `incrementHandle` checks the limit against the addresses that the blocks contain.
    if (maxPerHandle !== undefined && (handle !== undefined || count > maxPerHandle)) break;
    const incremented =
      handleId === undefined ? undefined : incrementedHandle(handleId, handle, stored.key.cidr, count);
    const outcome = await records.transactBlocks([{ stored, value }], incremented, extraWrites);
    if (outcome === undefined) break;
    if (outcome.done)
      return {
        ...(extraWrites.length === 0 ? {} : { extraRevisions: outcome.extraRevisions }),
        handle: incremented === undefined ? undefined : { ...incremented.entry, revision: outcome.handleRevision },
      };
    if (outcome.refused === "block") return undefined;
    if (outcome.refused === "extraWrites") throw new ExtraWritesConflict();
    if (handleId !== undefined) handle = await records.handle(handleId);
  }
  return "write separately";
}

function incrementedHandle(handleId: string, before: StoredHandle | undefined, block: Cidr, count: number) {
  const key = { type: "ipamHandle", handleId } as const;
  if (before === undefined)
    return { op: "create", entry: { key, value: { handleId, block: { [block]: count }, deleted: false } } } as const;
  const counts = { ...before.value.block, [block]: (before.value.block[block] ?? 0) + count };
  return { op: "update", entry: { ...before, value: { ...before.value, block: counts } } } as const;
}
