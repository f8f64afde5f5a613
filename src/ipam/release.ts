// Giving addresses back, by name or by handle. A release that names the handle or sequence number it saw is refused when
// the address has since gone to somebody else; the addresses of one block are released together or not at all.
import { type Cidr, cidrContains, type IpAddress, maskCidr } from "../lib/ip.ts";
import type { Block } from "../model/index.ts";
import { giveUpBlock } from "./affinities.ts";
import { addressAt, allocationAt, free, freeCold, heldBy, isCooling, isEmpty, ordinalOf, sameHandle } from "./block.ts";
import { readConfig } from "./config.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { BlockClaimed, BlockNotEmpty, StaleRelease, UnknownHandle } from "./errors.ts";
import { recount, settleHandle } from "./handles.ts";
import { type IpamPool, poolAround, readPools, selectsNode } from "./pools.ts";
import type { StoredBlock, StoredHandle } from "./records.ts";

export interface ReleaseRequest {
  readonly address: IpAddress;
  /** Refuse when another handle holds it. */
  readonly handleId?: string;
  /** Refuse when it was given again since. */
  readonly sequenceNumber?: bigint;
}

export interface ReleaseResult {
  readonly released: readonly IpAddress[];
  /** Were free already. */
  readonly notAllocated: readonly IpAddress[];
  /** The first refusal or failure; the addresses of its block are in neither list. */
  readonly error?: unknown;
}

/** How many blocks are worked on at once. */
const WIDTH = 8;

export async function releaseAddresses(context: Context, requests: readonly ReleaseRequest[]): Promise<ReleaseResult> {
  const [config, pools] = await Promise.all([readConfig(context), readPools(context.records)]);
  const { byBlock, homeless } = await groupByBlock(context, requests, pools);
  const released: IpAddress[] = [];
  const notAllocated: IpAddress[] = [...homeless];
  let firstError: unknown;
  const groups = [...byBlock];
  for (let i = 0; i < groups.length; i += WIDTH) {
    const results = await Promise.allSettled(
      groups
        .slice(i, i + WIDTH)
        .map(([cidr, wanted]) => releaseInBlock(context, cidr, wanted, config.ipCooldownSeconds ?? 0)),
    );
    const emptied: Block[] = [];
    const left = new Map<string, { seen: StoredHandle; counts: Map<Cidr, number> }>();
    for (const result of results) {
      if (result.status === "rejected") {
        firstError ??= result.reason;
        continue;
      }
      released.push(...result.value.released);
      notAllocated.push(...result.value.notAllocated);
      if (result.value.emptied !== undefined) emptied.push(result.value.emptied);
      for (const { seen, cidr, count } of result.value.handles) {
        const entry = left.get(seen.value.handleId) ?? { seen, counts: new Map<Cidr, number>() };
        entry.counts.set(cidr, count);
        left.set(seen.value.handleId, entry);
      }
    }
    for (const { seen, counts } of left.values()) await settleOrLog(context, seen, counts);
    for (const block of emptied) await giveUpIfDeselected(context, block, pools);
  }
  return { released, notAllocated, ...(firstError === undefined ? {} : { error: firstError }) };
}

/** Frees everything a handle holds. `UnknownHandle` when there is none. */
export async function releaseByHandle(context: Context, handleId: string): Promise<readonly IpAddress[]> {
  const [config, handle] = await Promise.all([readConfig(context), context.records.handle(handleId)]);
  if (handle === undefined) throw new UnknownHandle(handleId);
  const counts = new Map<Cidr, number>();
  const released: IpAddress[] = [];
  const emptied: Block[] = [];
  const blocks = Object.keys(handle.value.block);
  let isSettled = false;
  for (const text of blocks) {
    const cidr = text as Cidr;
    const result = await releaseHeld(context, {
      cidr,
      handleId,
      cooldownSeconds: config.ipCooldownSeconds ?? 0,
      ...(blocks.length === 1 ? { last: handle } : {}),
    });
    released.push(...result.released);
    if (result.emptied !== undefined) emptied.push(result.emptied);
    isSettled = result.isSettled === true;
    if (isSettled) continue;
    // Nothing was there although the handle says so: an assignment that died, or one that is about to write.
    const count = result.released.length > 0 ? 0 : (await recount(context, handleId, [cidr])).get(cidr);
    counts.set(cidr, count ?? 0);
  }
  if (!isSettled) await settleOrLog(context, handle, counts);
  if (emptied.length > 0) {
    const pools = await readPools(context.records);
    for (const block of emptied) await giveUpIfDeselected(context, block, pools);
  }
  return released;
}

interface BlockResult {
  readonly released: readonly IpAddress[];
  readonly notAllocated: readonly IpAddress[];
  /** The block when this release left it without an allocation. */
  readonly emptied?: Block;
  readonly handles: readonly { readonly seen: StoredHandle; readonly cidr: Cidr; readonly count: number }[];
}

async function releaseInBlock(
  context: Context,
  cidr: Cidr,
  wanted: readonly ReleaseRequest[],
  cooldownSeconds: number,
): Promise<BlockResult> {
  return untilWon(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const addresses = wanted.map((request) => request.address);
    if (stored === undefined) return { released: [], notAllocated: addresses, handles: [] };
    const { ordinals, notAllocated, holders } = judge(stored.value, wanted);
    if (ordinals.length === 0) return { released: [], notAllocated, handles: [] };
    // Handles are read before the block is written: see handles.ts.
    const handles = (await Promise.all([...holders].map((id) => context.records.handle(id)))).flatMap((h) => h ?? []);
    const freed = free(stored.value, ordinals, { cooldownSeconds, nowMs: context.nowMs, forgetNumbers: true });
    const value = freeCold(freed, cooldownSeconds, context.nowMs);
    if (!(await writeFreed(context, stored, value))) return undefined;
    const gone = new Set(notAllocated);
    return {
      released: addresses.filter((address) => !gone.has(address)),
      notAllocated,
      handles: handles.map((seen) => ({ seen, cidr, count: heldBy(value, seen.value.handleId) })),
      ...(isEmpty(value) ? { emptied: value } : {}),
    };
  });
}

/** Which ordinals to free; throws when a request no longer describes what is allocated. */
function judge(block: Block, wanted: readonly ReleaseRequest[]) {
  const ordinals: number[] = [];
  const notAllocated: IpAddress[] = [];
  const holders = new Set<string>();
  for (const { address, handleId, sequenceNumber } of wanted) {
    const ordinal = ordinalOf(block, address);
    const held = allocationAt(block, ordinal);
    if (held === undefined || isCooling(held)) {
      notAllocated.push(address);
      continue;
    }
    const number = block.sequenceNumberForAllocation[ordinal];
    if (sequenceNumber !== undefined && number !== undefined && number !== sequenceNumber)
      throw new StaleRelease(address, "BadSequenceNumber", String(sequenceNumber), String(number));
    if (handleId !== undefined && !sameHandle(held.handleId, handleId))
      throw new StaleRelease(address, "BadHandle", handleId, held.handleId ?? "no handle");
    ordinals.push(ordinal);
    if (held.handleId !== undefined) holders.add(held.handleId);
  }
  return { ordinals, notAllocated, holders };
}

interface HeldResult {
  readonly released: readonly IpAddress[];
  readonly emptied?: Block;
  /** The handle went with the addresses. */
  readonly isSettled?: boolean;
}

async function releaseHeld(
  context: Context,
  request: {
    readonly cidr: Cidr;
    readonly handleId: string;
    readonly cooldownSeconds: number;
    /** The handle, when this is all it holds. */
    readonly last?: StoredHandle;
  },
): Promise<HeldResult> {
  const { cidr, handleId, cooldownSeconds, last } = request;
  return untilWon<HeldResult>(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    if (stored === undefined) return { released: [] };
    const ordinals = stored.value.allocations.flatMap((_, ordinal) =>
      sameHandle(allocationAt(stored.value, ordinal)?.handleId, handleId) ? [ordinal] : [],
    );
    if (ordinals.length === 0) return { released: [] };
    const freed = free(stored.value, ordinals, { cooldownSeconds, nowMs: context.nowMs, forgetNumbers: false });
    const value = freeCold(freed, cooldownSeconds, context.nowMs);
    const result = {
      released: ordinals.map((ordinal) => addressAt(stored.value, ordinal)),
      ...(isEmpty(value) ? { emptied: value } : {}),
    };
    if (last !== undefined) {
      const outcome = await context.records.freeTogether(stored, isForgotten(value) ? undefined : value, last);
      if (outcome === "block") return undefined;
      if (outcome === "done") {
        context.memory.full.delete(cidr);
        return { ...result, isSettled: true };
      }
    }
    if (!(await writeFreed(context, stored, value))) return undefined;
    return result;
  });
}

/** A block that is empty and nobody's has no reason to be. */
const isForgotten = (block: Block): boolean => block.affinity === undefined && isEmpty(block);

/** False when another wrote it first. */
async function writeFreed(context: Context, stored: StoredBlock, value: Block): Promise<boolean> {
  try {
    if (isForgotten(value)) await context.records.deleteBlock(stored);
    else await context.records.updateBlock(stored, value);
    context.memory.full.delete(stored.key.cidr);
    return true;
  } catch (error) {
    if (isLost(error)) return false;
    throw error;
  }
}

/** The addresses are free whatever becomes of the handle, so a failure here is told and not thrown. */
async function settleOrLog(context: Context, seen: StoredHandle, counts: ReadonlyMap<Cidr, number>): Promise<void> {
  try {
    await settleHandle(context, seen, counts);
  } catch (error) {
    context.log.warn("handle keeps a count too high", { handle: seen.value.handleId, error });
  }
}

/** An emptied block whose pool no longer selects its node is not kept for it. */
async function giveUpIfDeselected(context: Context, block: Block, pools: readonly IpamPool[]): Promise<void> {
  if (block.affinity?.startsWith("host:") !== true) return;
  const name = block.affinity.slice("host:".length);
  const pool = poolAround(pools, block.cidr);
  if (pool === undefined) return;
  try {
    const node = await context.records.resource("Node", name);
    if (node === undefined || selectsNode(pool, node.metadata.labels ?? {})) return;
    await giveUpBlock(context, { type: "host", name }, block.cidr, { mustBeEmpty: true });
  } catch (error) {
    if (error instanceof BlockNotEmpty || error instanceof BlockClaimed || isLost(error)) return;
    context.log.warn("could not give up an emptied block", { block: block.cidr, host: name, error });
  }
}

/** Requests by the block their address lies in, each address once; addresses of no block at all apart. */
async function groupByBlock(context: Context, requests: readonly ReleaseRequest[], pools: readonly IpamPool[]) {
  const byBlock = new Map<Cidr, ReleaseRequest[]>();
  const homeless: IpAddress[] = [];
  let allBlocks: readonly StoredBlock[] | undefined;
  const seen = new Set<IpAddress>();
  for (const request of requests) {
    if (seen.has(request.address)) continue;
    seen.add(request.address);
    const pool = poolAround(pools, request.address);
    let cidr = pool === undefined ? undefined : maskCidr(request.address, pool.blockSize);
    if (cidr === undefined) {
      // Its pool is gone: the block may still be there.
      allBlocks ??= await context.records.blocks();
      cidr = allBlocks.find(({ key }) => cidrContains(key.cidr, request.address))?.key.cidr;
    }
    if (cidr === undefined) homeless.push(request.address);
    else byBlock.set(cidr, [...(byBlock.get(cidr) ?? []), request]);
  }
  return { byBlock, homeless };
}
