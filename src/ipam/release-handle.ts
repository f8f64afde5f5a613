// Giving back everything a handle holds: in one write where the datastore can, block by block otherwise.
import { type Cidr, hostCidr, type IpAddress } from "../lib/ip.ts";
import type { Block } from "../model/index.ts";
import { giveUpEmptied, giveUpIfDeselected, isDeselected, settleOrLog, writeFreed } from "./after-release.ts";
import { addressAt, allocationAt, free, freeCold, isEmpty, isForgotten, sameHandle } from "./block.ts";
import { readConfig } from "./config.ts";
import { type Context, untilWon } from "./context.ts";
import { UnknownHandle } from "./errors.ts";
import { recount } from "./handles.ts";
import { type PodOwner, requireOwner } from "./pod-owner.ts";
import { readPools } from "./pools.ts";
import type { StoredBlock, StoredHandle } from "./records.ts";
import type { Also } from "./take.ts";

export interface HandleRelease {
  readonly released: readonly IpAddress[];
  /** What became of the writes that were to go with it. `refused`: nothing was released because of them. */
  readonly others: "written" | "left" | "refused";
}

export interface HandleReleaseOptions {
  /** To be written in the same moment, where the datastore can. */
  readonly also?: Also | undefined;
  /** Refuse (`StaleRelease`) if the handle holds an address whose attributes do not name this pod. */
  readonly owner?: PodOwner | undefined;
}

/** Frees everything a handle holds. `UnknownHandle` when there is none. */
export function releaseByHandle(
  context: Context,
  handleId: string,
  { also, owner }: HandleReleaseOptions = {},
): Promise<HandleRelease> {
  return context.attempt((here) => {
    let cidrs: readonly Cidr[] = []; // where its addresses were when last seen
    return untilWon(here, `handle ${handleId}`, async () => {
      const [config, handle, ...seen] = await Promise.all([
        readConfig(here),
        here.records.handle(handleId),
        ...cidrs.map((cidr) => here.records.block(cidr)),
      ]);
      if (handle === undefined) throw new UnknownHandle(handleId);
      const cooldownSeconds = config.ipCooldownSeconds ?? 0;
      const release = { handle, owner, cooldownSeconds };
      if (here.records.store.together === undefined) return releaseInSteps(here, release);
      const now = Object.keys(handle.value.block) as Cidr[];
      const isSame = now.length === cidrs.length && now.every((cidr, i) => cidr === cidrs[i]);
      const blocks = isSame ? seen : await Promise.all(now.map((cidr) => here.records.block(cidr)));
      cidrs = now;
      const freed = blocks.flatMap((block) => (block && freedOf(here, block, release)) ?? []);
      // A handle that names what it does not hold: an assignment died, or one is about to write.
      if (freed.length === 0 || freed.length < now.length) return releaseInSteps(here, release);
      return releaseTogether(here, handle, freed, also);
    });
  });
}

/** Addresses, handle and what goes with them in one write; undefined when somebody was faster. */
async function releaseTogether(
  context: Context,
  handle: StoredHandle,
  freed: readonly Freed[],
  also: Also | undefined,
): Promise<HandleRelease | undefined> {
  // Asked before the write, so that it can be part of what the write is bound to.
  const surplus: Block[] = [];
  for (const { value } of freed) if (isEmpty(value) && (await isDeselected(context, value))) surplus.push(value);
  const released = freed.flatMap(({ addresses }) => addresses);
  const others = (await also?.(released.map(hostCidr))) ?? [];
  const outcome = await context.records.writeBlocks(
    freed.map(({ stored, value }) => ({ stored, value: isForgotten(value) ? undefined : value })),
    { op: "delete", key: handle.key, revision: handle.revision },
    others,
  );
  if (outcome?.done !== true) return outcome?.inTheWay === "others" ? { released: [], others: "refused" } : undefined;
  for (const block of surplus) await giveUpEmptied(context, block);
  return { released, others: others.length > 0 ? "written" : "left" };
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
  if (emptied.length > 0) {
    const pools = await readPools(context.records);
    for (const block of emptied) await giveUpIfDeselected(context, block, pools);
  }
  return { released, others: "left" };
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
  const value = freeCold(freed, cooldownSeconds, nowMs);
  return { stored, value, addresses: ordinals.map((ordinal) => addressAt(block, ordinal)) };
}

/** Frees what a handle holds in one block; undefined when it holds nothing there. */
async function releaseHeld(context: Context, cidr: Cidr, release: Release): Promise<Freed | undefined> {
  const { freed } = await untilWon(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const freed = stored && freedOf(context, stored, release);
    if (freed === undefined) return { freed };
    return (await writeFreed(context, freed.stored, freed.value)) ? { freed } : undefined;
  });
  return freed;
}
