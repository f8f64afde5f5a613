// Releases individual addresses (release-handle.ts releases all addresses of a handle). A request may state the handle, pod or
// sequence number that it expects; it is rejected if the address has been assigned again since. The addresses of one block
// are released together or not at all.
import { type Cidr, cidrContains, type IpAddress, maskCidr } from "../../lib/ip/ip.ts";
import type { Block, IpPool } from "../../model/index.ts";
import { releaseBlockIfDeselected, setHandleCountsOrLog, writeFreed } from "./after-release.ts";
import {
  allocationAt,
  releaseOrdinals,
  freeExpiredCooldowns,
  countByHandle,
  isCooling,
  isEmpty,
  ordinalOf,
  sameHandle,
} from "../blocks/block.ts";
import { readConfig } from "../config.ts";
import { type Context, retryOnConflict } from "../context.ts";
import { StaleRelease } from "../errors.ts";
import { type ExpectedPod, requireExpectedPod } from "../blocks/expected-pod.ts";
import { poolContaining, readPools } from "../assign/pools.ts";
import type { StoredBlock, StoredHandle } from "../records.ts";

export interface ReleaseRequest {
  readonly address: IpAddress;
  /** Reject if the address belongs to another handle. */
  readonly handleId?: string;
  /** Reject unless the allocation's attributes name this pod. */
  readonly expectedPod?: ExpectedPod;
  /** Reject if the address was assigned again since this number was read. */
  readonly sequenceNumber?: bigint;
  /** Reject if the allocation has active or alternate owner attributes. */
  readonly requireNoOwner?: boolean;
}

export interface ReleaseResult {
  readonly released: readonly IpAddress[];
  /** Addresses that were already free. */
  readonly notAllocated: readonly IpAddress[];
  /** The first error; the addresses of its block are in neither list. */
  readonly error?: unknown;
}

/** Number of blocks that are written concurrently. */
const CONCURRENT_BLOCKS = 8;

export async function releaseAddresses(context: Context, requests: readonly ReleaseRequest[]): Promise<ReleaseResult> {
  const [config, pools] = await Promise.all([readConfig(context), readPools(context.records)]);
  const { byBlock, outsideBlocks } = await groupByBlock(context, requests, pools);
  const released: IpAddress[] = [];
  const notAllocated: IpAddress[] = [...outsideBlocks];
  let firstError: unknown;
  const groups = [...byBlock];
  for (let i = 0; i < groups.length; i += CONCURRENT_BLOCKS) {
    const results = await Promise.allSettled(
      groups
        .slice(i, i + CONCURRENT_BLOCKS)
        .map(([cidr, inBlock]) => releaseInBlock(context, cidr, inBlock, config.ipCooldownSeconds ?? 0)),
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
    for (const { seen, counts } of left.values()) await setHandleCountsOrLog(context, seen, counts);
    for (const block of emptied) await releaseBlockIfDeselected(context, block);
  }
  return { released, notAllocated, error: firstError };
}

interface BlockResult {
  readonly released: readonly IpAddress[];
  readonly notAllocated: readonly IpAddress[];
  /** The block, if this release freed its last allocation. */
  readonly emptied?: Block;
  readonly handles: readonly { readonly seen: StoredHandle; readonly cidr: Cidr; readonly count: number }[];
}

async function releaseInBlock(
  context: Context,
  cidr: Cidr,
  requests: readonly ReleaseRequest[],
  cooldownSeconds: number,
): Promise<BlockResult> {
  return retryOnConflict(context, `block ${cidr}`, async () => {
    const stored = await context.records.block(cidr);
    const addresses = requests.map((request) => request.address);
    if (stored === undefined) return { released: [], notAllocated: addresses, handles: [] };
    const { ordinals, notAllocated, handleIds } = checkRequests(stored.value, requests);
    if (ordinals.length === 0) return { released: [], notAllocated, handles: [] };
    // Handles must be read before the block is written: see blocks/handles.ts.
    const handles = (await Promise.all([...handleIds].map((id) => context.records.handle(id)))).flatMap((h) => h ?? []);
    const freed = releaseOrdinals(stored.value, ordinals, { cooldownSeconds, nowMs: context.nowMs });
    const value = freeExpiredCooldowns(freed, cooldownSeconds, context.nowMs);
    if (!(await writeFreed(context, stored, value))) return undefined;
    const gone = new Set(notAllocated);
    return {
      released: addresses.filter((address) => !gone.has(address)),
      notAllocated,
      handles: handles.map((seen) => ({ seen, cidr, count: countByHandle(value, seen.value.handleId) })),
      ...(isEmpty(value) ? { emptied: value } : {}),
    };
  });
}

/**
 * Returns the ordinals to free.
 * @throws StaleRelease if the allocation is not the one that a request expects
 */
function checkRequests(block: Block, requests: readonly ReleaseRequest[]) {
  const ordinals: number[] = [];
  const notAllocated: IpAddress[] = [];
  const handleIds = new Set<string>();
  for (const { address, handleId, expectedPod, sequenceNumber, requireNoOwner } of requests) {
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
    if (expectedPod !== undefined) requireExpectedPod(address, held, expectedPod);
    const owners = { ...held.alternateOwnerAttributes, ...held.secondary };
    if (requireNoOwner === true && Object.keys(owners).length > 0)
      throw new StaleRelease(address, "BadOwner", "no owner", JSON.stringify(owners));
    ordinals.push(ordinal);
    if (held.handleId !== undefined) handleIds.add(held.handleId);
  }
  return { ordinals, notAllocated, handleIds };
}

/** Groups the requests by the block that contains their address. Repeated addresses are dropped. */
async function groupByBlock(context: Context, requests: readonly ReleaseRequest[], pools: readonly IpPool[]) {
  const byBlock = new Map<Cidr, ReleaseRequest[]>();
  const outsideBlocks: IpAddress[] = [];
  let allBlocks: readonly StoredBlock[] | undefined;
  const seen = new Set<IpAddress>();
  for (const request of requests) {
    if (seen.has(request.address)) continue;
    seen.add(request.address);
    const pool = poolContaining(pools, request.address);
    let cidr = pool === undefined ? undefined : maskCidr(request.address, pool.blockSize);
    if (cidr === undefined) {
      // The pool was deleted; the block may still exist.
      allBlocks ??= await context.records.blocks();
      cidr = allBlocks.find(({ key }) => cidrContains(key.cidr, request.address))?.key.cidr;
    }
    if (cidr === undefined) outsideBlocks.push(request.address);
    else byBlock.set(cidr, [...(byBlock.get(cidr) ?? []), request]);
  }
  return { byBlock, outsideBlocks };
}
