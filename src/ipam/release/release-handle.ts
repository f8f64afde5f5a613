// Releases everything a handle holds: in one transaction where the datastore has transactions, otherwise block by block.
import type { Write } from "../../datastore/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { giveUpIfDeselected, settleOrLog, writeFreed } from "./after-release.ts";
import {
  addressAt,
  allocationAt,
  free,
  freeExpiredCooldowns,
  isEmpty,
  isForgotten,
  sameHandle,
} from "../blocks/block.ts";
import { type Context, retryOnConflict } from "../context.ts";
import { UnknownHandle } from "../errors.ts";
import { recount } from "../blocks/handles.ts";
import { type PodOwner, requireOwner } from "../blocks/pod-owner.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface HandleRelease {
  readonly released: readonly IpAddress[];
  /** `notWritten`: the caller does them itself. `refused`: because of them, nothing was released. */
  readonly extraWrites: "written" | "notWritten" | "refused";
}

export interface HandleReleaseOptions {
  /** Written in the same transaction, if the datastore has transactions. */
  readonly extraWrites?: readonly Write[];
  /** Refuse (`StaleRelease`) if the handle holds an address whose attributes do not name this pod. */
  readonly owner?: PodOwner;
}

/** Frees everything a handle holds. `UnknownHandle` if there is no such handle. */
export function releaseByHandle(
  context: Context,
  handleId: string,
  { extraWrites = [], owner }: HandleReleaseOptions = {},
): Promise<HandleRelease> {
  const { records } = context;
  const { cache } = context.options;
  return retryOnConflict(context, `handle ${handleId}`, async (attempt) => {
    const reads = cache?.entries.isInSync === true ? cache : context.reads;
    const [config, handle] = await Promise.all([reads.config(), records.handle(handleId)]);
    if (handle === undefined) throw new UnknownHandle(handleId);
    const release = { handle, owner, cooldownSeconds: config.ipCooldownSeconds ?? 0 };
    if (records.store.transact === undefined) return releaseInSteps(context, release);
    const cidrs = Object.keys(handle.value.block) as Cidr[];
    // A cached block may be outdated: the transaction is then refused, and the next attempt reads it. The owner of an
    // address is never decided by a cached block.
    const mayUseCache = attempt === 0 && owner === undefined;
    const blocks = await Promise.all(cidrs.map((cidr) => (mayUseCache ? context.ownBlock(cidr) : records.block(cidr))));
    const freed = blocks.flatMap((block) => (block && freedOf(context, block, release)) ?? []);
    // A handle that names a block without its addresses: an assignment crashed, or is about to write.
    if (freed.length === 0 || freed.length < cidrs.length) return releaseInSteps(context, release);
    return transactRelease(context, handle, freed, extraWrites);
  });
}

/** Releases addresses and handle and does the extra writes in one transaction; undefined if another process was faster. */
async function transactRelease(
  context: Context,
  handle: StoredHandle,
  freed: readonly Freed[],
  extraWrites: readonly Write[],
): Promise<HandleRelease | undefined> {
  const released = freed.flatMap(({ addresses }) => addresses);
  const outcome = await context.records.transactBlocks(
    freed.map(({ stored, value }) => ({ stored, value: isForgotten(value) ? undefined : value })),
    { op: "delete", key: handle.key, revision: handle.revision },
    extraWrites,
  );
  if (outcome?.done !== true)
    return outcome?.refused === "extraWrites" ? { released: [], extraWrites: "refused" } : undefined;
  for (const { value } of freed) if (isEmpty(value)) await giveUpIfDeselected(context, value);
  return { released, extraWrites: extraWrites.length > 0 ? "written" : "notWritten" };
}

interface Release {
  readonly handle: StoredHandle;
  readonly owner: PodOwner | undefined;
  readonly cooldownSeconds: number;
}

async function releaseInSteps(context: Context, release: Release): Promise<HandleRelease> {
  const { handle } = release;
  const { handleId } = handle.key;
  const counts = new Map<Cidr, number>();
  const released: IpAddress[] = [];
  const emptied: Block[] = [];
  for (const text of Object.keys(handle.value.block)) {
    const cidr = text as Cidr;
    const result = await releaseHeld(context, cidr, release);
    released.push(...(result?.addresses ?? []));
    if (result !== undefined && isEmpty(result.value)) emptied.push(result.value);
    // Nothing was there although the handle says so: an assignment that died, or one that is about to write.
    const count = result !== undefined ? 0 : (await recount(context, handleId, [cidr])).get(cidr);
    counts.set(cidr, count ?? 0);
  }
  await settleOrLog(context, handle, counts);
  for (const block of emptied) await giveUpIfDeselected(context, block);
  return { released, extraWrites: "notWritten" };
}

interface Freed {
  readonly stored: StoredBlock;
  readonly value: Block;
  readonly addresses: readonly IpAddress[];
}

/** A block without a handle's addresses; undefined when it has none of them. */
function freedOf(
  context: Context,
  stored: StoredBlock,
  { handle, owner, cooldownSeconds }: Release,
): Freed | undefined {
  const { handleId } = handle.key;
  const block = stored.value;
  const ordinals = block.allocations.flatMap((_, ordinal) => {
    const held = allocationAt(block, ordinal);
    if (held === undefined || !sameHandle(held.handleId, handleId)) return [];
    if (owner !== undefined) requireOwner(addressAt(block, ordinal), held, owner);
    return [ordinal];
  });
  if (ordinals.length === 0) return undefined;
  const { nowMs } = context;
  const freed = free(block, ordinals, { cooldownSeconds, nowMs });
  const value = freeExpiredCooldowns(freed, cooldownSeconds, nowMs);
  return { stored, value, addresses: ordinals.map((ordinal) => addressAt(block, ordinal)) };
}

/** Frees what a handle holds in one block; undefined when it holds nothing there. */
async function releaseHeld(context: Context, cidr: Cidr, release: Release): Promise<Freed | undefined> {
  const { freed } = await retryOnConflict(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const freed = stored && freedOf(context, stored, release);
    if (freed === undefined) return { freed };
    return (await writeFreed(context, freed.stored, freed.value)) ? { freed } : undefined;
  });
  return freed;
}
