// Takes addresses from one block. The compare-and-swap of the block is the only concurrency control: whoever read the
// block before another process wrote it has its own write refused, reads the block again and repeats the decision.
//
// Block, handle and the caller's own writes are one transaction. Where the datastore has no transactions the handle is
// raised first (see blocks/handles.ts for why in this order), and the caller's writes are left to the caller.
import type { Revision, Write } from "../../datastore/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { cidrLength } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { type AllocationOwner, addressAt, type Owner, ownerText, takeFree } from "../blocks/block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { ExtraWritesRefused } from "../errors.ts";
import { withExpiredCooldownsFreed } from "./find-free-block.ts";
import { lowerHandle, raiseHandle } from "../blocks/handles.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface TakeRequest {
  readonly count: number;
  readonly for: AllocationOwner;
  readonly isReserved: (address: IpAddress) => boolean;
  readonly cooldownSeconds: number;
  /** Take only from a block of this owner, for example because of strict affinity. */
  readonly onlyOf?: Owner;
  readonly maxPerHandle?: number;
  /** The handle as this caller wrote it last. By default the handle is assumed not to exist; if it does, it is read. */
  readonly handle?: StoredHandle;
  /** Done only if all addresses come from this block. */
  readonly extraWrites?: ExtraWrites;
}

/** Writes that belong to addresses, such as the workload endpoint that has them. */
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
 * Takes up to `count` addresses; none if the block is full, deleted or of another owner.
 * @param first the block as it is known; read again after a conflict
 * @throws ExtraWritesRefused
 */
export async function takeFromBlock(context: Context, first: StoredBlock, taking: TakeRequest): Promise<TakeResult> {
  let known: StoredBlock | undefined = first;
  return retryOnConflict(context, `block ${first.key.cidr}`, async () => {
    const stored = known ?? (await context.records.block(first.key.cidr));
    known = undefined;
    if (stored === undefined) return NOTHING;
    if (taking.onlyOf !== undefined && stored.value.affinity !== ownerText(taking.onlyOf)) return NOTHING;
    const block = withExpiredCooldownsFreed(context, stored, taking.cooldownSeconds);
    const taken = takeFree(block.value, taking.count, taking.for, taking.isReserved);
    if (taken.ordinals.length === 0) return NOTHING;
    const length = cidrLength(first.key.cidr);
    const addresses = taken.ordinals.map((ordinal) => `${addressAt(block.value, ordinal)}/${length}` as Cidr);
    const written = await writeTaken(context, block, taken.block, {
      handleId: taking.for.handleId,
      count: addresses.length,
      maxPerHandle: taking.maxPerHandle,
      handle: taking.handle,
      extraWrites: addresses.length === taking.count ? (taking.extraWrites?.(addresses) ?? []) : [],
    });
    return written && { addresses, ...written };
  });
}

/** What is written with a block that holds `count` more addresses. */
export interface Raise {
  readonly handleId: string | undefined;
  readonly count: number;
  readonly maxPerHandle: number | undefined;
  readonly handle: StoredHandle | undefined;
  readonly extraWrites: readonly Write[];
}

/** @returns undefined if another process wrote the block first */
export async function writeTaken(
  context: Context,
  stored: StoredBlock,
  value: Block,
  raise: Raise,
): Promise<Omit<TakeResult, "addresses"> | undefined> {
  const { handleId, count, maxPerHandle } = raise;
  const outcome = await transactTaken(context, stored, value, raise);
  if (outcome !== "write separately") return outcome;
  const raised =
    handleId === undefined
      ? undefined
      : await raiseHandle(context, handleId, { block: stored.key.cidr, count, maxPerHandle });
  try {
    await context.records.updateBlock(stored, value);
    return { handle: raised?.stored };
  } catch (error) {
    // It is unknown whether a write without a reply was done. The handle then stays raised, which a release corrects.
    if (!isConflict(error)) throw error;
    if (raised !== undefined) await lowerHandle(context.forCleanUp(), raised);
    return undefined;
  }
}

const TRANSACTION_ATTEMPTS = 3;

/** Writes block, handle and extra writes in one transaction; undefined if another process wrote the block first. */
async function transactTaken(
  context: Context,
  stored: StoredBlock,
  value: Block,
  raise: Raise,
): Promise<Omit<TakeResult, "addresses"> | undefined | "write separately"> {
  const { records } = context;
  const { handleId, count, maxPerHandle, extraWrites } = raise;
  let { handle } = raise; // most containers get their first address, for which the handle is new
  for (let attempt = 0; attempt < TRANSACTION_ATTEMPTS; attempt++) {
    // Only `raiseHandle` decides whether a limit allows more.
    if (maxPerHandle !== undefined && (handle !== undefined || count > maxPerHandle)) break;
    const raised = handleId === undefined ? undefined : raisedHandle(handleId, handle, stored.key.cidr, count);
    const outcome = await records.transactBlocks([{ stored, value }], raised, extraWrites);
    if (outcome === undefined) break;
    if (outcome.done)
      return {
        ...(extraWrites.length === 0 ? {} : { extraRevisions: outcome.extraRevisions }),
        handle: raised === undefined ? undefined : { ...raised.entry, revision: outcome.handleRevision },
      };
    if (outcome.refused === "block") return undefined;
    if (outcome.refused === "extraWrites") throw new ExtraWritesRefused();
    if (handleId !== undefined) handle = await records.handle(handleId);
  }
  return "write separately";
}

function raisedHandle(handleId: string, before: StoredHandle | undefined, block: Cidr, count: number) {
  const key = { type: "ipamHandle", handleId } as const;
  if (before === undefined)
    return { op: "create", entry: { key, value: { handleId, block: { [block]: count }, deleted: false } } } as const;
  const counts = { ...before.value.block, [block]: (before.value.block[block] ?? 0) + count };
  return { op: "update", entry: { ...before, value: { ...before.value, block: counts } } } as const;
}
