// Releases all addresses of a handle: in one transaction if the datastore has transactions, otherwise block by block.
import type { Write } from "../../datastore/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import { releaseBlockIfDeselected, setHandleCountsOrLog, writeFreed } from "./after-release.ts";
import {
  addressAt,
  allocationAt,
  releaseOrdinals,
  freeExpiredCooldowns,
  isEmpty,
  isUnownedAndEmpty,
  sameHandle,
} from "../blocks/block.ts";
import { type Context, retryOnConflict } from "../context.ts";
import { UnknownHandle } from "../errors.ts";
import { recountHandle } from "../blocks/handles.ts";
import { type ExpectedPod, requireExpectedPod } from "../blocks/expected-pod.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface HandleRelease {
  readonly released: readonly IpAddress[];
  /** `notWritten`: the caller must do them. `conflict`: one of them conflicted, so nothing was released. */
  readonly extraWrites: "written" | "notWritten" | "conflict";
}

export interface HandleReleaseOptions {
  /** Written in the same transaction, if the datastore has transactions. */
  readonly extraWrites?: readonly Write[];
  /** Reject (`StaleRelease`) if the handle has an address whose attributes do not name this pod. */
  readonly expectedPod?: ExpectedPod;
}

/** @throws UnknownHandle */
export function releaseByHandle(
  context: Context,
  handleId: string,
  { extraWrites = [], expectedPod }: HandleReleaseOptions = {},
): Promise<HandleRelease> {
  const { records } = context;
  const { cache } = context.options;
  return retryOnConflict(context, `handle ${handleId}`, async (attempt) => {
    const reads = cache?.entries.isInSync === true ? cache : context.reads;
    const [config, handle] = await Promise.all([reads.config(), records.handle(handleId)]);
    if (handle === undefined) throw new UnknownHandle(handleId);
    const release = { handle, expectedPod, cooldownSeconds: config.ipCooldownSeconds ?? 0 };
    if (records.store.transact === undefined) return releaseInSteps(context, release);
    const cidrs = Object.keys(handle.value.block) as Cidr[];
    // A cached block may be outdated: the transaction is then rejected, and the next attempt reads the block. The expected
    // pod is never compared with a cached block.
    const mayUseCache = attempt === 0 && expectedPod === undefined;
    const blocks = await Promise.all(cidrs.map((cidr) => (mayUseCache ? context.ownBlock(cidr) : records.block(cidr))));
    const freed = blocks.flatMap((block) => (block && freedOf(context, block, release)) ?? []);
    // The handle lists a block that has none of its addresses: an assignment crashed, or is about to write the block.
    if (freed.length === 0 || freed.length < cidrs.length) return releaseInSteps(context, release);
    return transactRelease(context, handle, freed, extraWrites);
  });
}

/** Releases the addresses and the handle, with the extra writes, in one transaction; undefined on a conflict. */
async function transactRelease(
  context: Context,
  handle: StoredHandle,
  freed: readonly Freed[],
  extraWrites: readonly Write[],
): Promise<HandleRelease | undefined> {
  const released = freed.flatMap(({ addresses }) => addresses);
  const outcome = await context.records.transactBlocks(
    freed.map(({ stored, value }) => ({ stored, value: isUnownedAndEmpty(value) ? undefined : value })),
    { op: "delete", key: handle.key, revision: handle.revision },
    extraWrites,
  );
  if (outcome?.done !== true)
    return outcome?.refused === "extraWrites" ? { released: [], extraWrites: "conflict" } : undefined;
  for (const { value } of freed) if (isEmpty(value)) await releaseBlockIfDeselected(context, value);
  return { released, extraWrites: extraWrites.length > 0 ? "written" : "notWritten" };
}

interface Release {
  readonly handle: StoredHandle;
  readonly expectedPod: ExpectedPod | undefined;
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
    // The handle lists this block, but the block has none of its addresses: an assignment crashed, or is about to write it.
    const count = result !== undefined ? 0 : (await recountHandle(context, handleId, [cidr])).get(cidr);
    counts.set(cidr, count ?? 0);
  }
  await setHandleCountsOrLog(context, handle, counts);
  for (const block of emptied) await releaseBlockIfDeselected(context, block);
  return { released, extraWrites: "notWritten" };
}

interface Freed {
  readonly stored: StoredBlock;
  readonly value: Block;
  readonly addresses: readonly IpAddress[];
}

/** Frees a handle's addresses in one block, in memory; undefined if the block has none of them. */
function freedOf(
  context: Context,
  stored: StoredBlock,
  { handle, expectedPod, cooldownSeconds }: Release,
): Freed | undefined {
  const { handleId } = handle.key;
  const block = stored.value;
  const ordinals = block.allocations.flatMap((_, ordinal) => {
    const held = allocationAt(block, ordinal);
    if (held === undefined || !sameHandle(held.handleId, handleId)) return [];
    if (expectedPod !== undefined) requireExpectedPod(addressAt(block, ordinal), held, expectedPod);
    return [ordinal];
  });
  if (ordinals.length === 0) return undefined;
  const { nowMs } = context;
  const freed = releaseOrdinals(block, ordinals, { cooldownSeconds, nowMs });
  const value = freeExpiredCooldowns(freed, cooldownSeconds, nowMs);
  return { stored, value, addresses: ordinals.map((ordinal) => addressAt(block, ordinal)) };
}

/** Frees a handle's addresses in one block; undefined if the block has none of them. */
async function releaseHeld(context: Context, cidr: Cidr, release: Release): Promise<Freed | undefined> {
  const { freed } = await retryOnConflict(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const freed = stored && freedOf(context, stored, release);
    if (freed === undefined) return { freed };
    return (await writeFreed(context, freed.stored, freed.value)) ? { freed } : undefined;
  });
  return freed;
}
