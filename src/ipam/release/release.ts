// Giving addresses back by name (by handle: release-handle.ts). A release that names the handle or sequence number it saw is refused when
// the address has since gone to somebody else; the addresses of one block are released together or not at all.
import { type Cidr, cidrContains, type IpAddress, maskCidr } from "../../lib/ip/ip.ts";
import type { Block, IpPool } from "../../model/index.ts";
import { giveUpIfDeselected, settleOrLog, writeFreed } from "./after-release.ts";
import {
  allocationAt,
  free,
  freeExpiredCooldowns,
  heldBy,
  isCooling,
  isEmpty,
  ordinalOf,
  sameHandle,
} from "../blocks/block.ts";
import { readConfig } from "../config.ts";
import { type Context, retryOnConflict } from "../context.ts";
import { StaleRelease } from "../errors.ts";
import { type PodOwner, requireOwner } from "../blocks/pod-owner.ts";
import { poolAround, readPools } from "../assign/pools.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface ReleaseRequest {
  readonly address: IpAddress;
  /** Refuse when another handle holds it. */
  readonly handleId?: string;
  /** Refuse unless the allocation's attributes name this pod. */
  readonly owner?: PodOwner;
  /** Refuse when it was given again since. */
  readonly sequenceNumber?: bigint;
  /** Refuse while somebody is noted as its owner. */
  readonly onlyUnowned?: boolean;
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
    for (const block of emptied) await giveUpIfDeselected(context, block);
  }
  return { released, notAllocated, error: firstError };
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
  return retryOnConflict(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const addresses = wanted.map((request) => request.address);
    if (stored === undefined) return { released: [], notAllocated: addresses, handles: [] };
    const { ordinals, notAllocated, holders } = judge(stored.value, wanted);
    if (ordinals.length === 0) return { released: [], notAllocated, handles: [] };
    // Handles are read before the block is written: see blocks/handles.ts.
    const handles = (await Promise.all([...holders].map((id) => context.records.handle(id)))).flatMap((h) => h ?? []);
    const freed = free(stored.value, ordinals, { cooldownSeconds, nowMs: context.nowMs });
    const value = freeExpiredCooldowns(freed, cooldownSeconds, context.nowMs);
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
  for (const { address, handleId, owner, sequenceNumber, onlyUnowned } of wanted) {
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
    if (owner !== undefined) requireOwner(address, held, owner);
    const owners = { ...held.alternateOwnerAttributes, ...held.secondary };
    if (onlyUnowned === true && Object.keys(owners).length > 0)
      throw new StaleRelease(address, "BadOwner", "nobody's", JSON.stringify(owners));
    ordinals.push(ordinal);
    if (held.handleId !== undefined) holders.add(held.handleId);
  }
  return { ordinals, notAllocated, holders };
}

/** Requests by the block their address lies in, each address once; addresses of no block at all apart. */
async function groupByBlock(context: Context, requests: readonly ReleaseRequest[], pools: readonly IpPool[]) {
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
