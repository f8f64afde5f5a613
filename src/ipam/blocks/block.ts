// What may happen inside one block, as pure functions from block to block. Free ordinals queue up: the head is given,
// what comes back goes to the tail, so an address rests as long as possible. Sequence numbers tell allocations of one
// address apart: each keeps the number the block had when it was made.
import {
  addressBits,
  addressPlus,
  addressToBigInt,
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpAddress,
  ipVersion,
} from "../../lib/ip/ip.ts";
import type { AllocationAttributes, Block, Labels } from "../../model/index.ts";

/** Who blocks are claimed for: a node, or a name that stands for a whole cluster (load balancers). */
export interface Owner {
  readonly type: "host" | "virtual";
  readonly name: string;
}
export const ownerText = (owner: Owner): string => `${owner.type}:${owner.name}`;

/** Addresses kept back at the ends of each new block of a host. */
export interface HostReserved {
  readonly startOfBlock: number;
  readonly endOfBlock: number;
  readonly handleId: string;
  readonly note: string;
}
export const WINDOWS_RESERVED_HANDLE = "windows-reserved-ipam-handle";

export interface AllocationOwner {
  readonly handleId?: string;
  readonly attributes?: Labels;
}

const sizeOf = (cidr: Cidr): number => 2 ** (addressBits(ipVersion(cidr)) - cidrLength(cidr));

/**
 * A new block, all free but what the host reserves.
 * @param nowMs the time of the claim; sequence numbers start at this time in nanoseconds
 */
export function newBlock(cidr: Cidr, owner: Owner, nowMs: number, reserved?: HostReserved): Block {
  const size = sizeOf(cidr);
  const kept = (ordinal: number) =>
    reserved !== undefined && (ordinal < reserved.startOfBlock || ordinal >= size - reserved.endOfBlock);
  const ordinals = Array.from({ length: size }, (_, ordinal) => ordinal);
  return {
    cidr,
    affinity: ownerText(owner),
    affinityClaimTime: new Date(nowMs).toISOString().replace(/\.\d+Z$/, "Z"), // whole seconds, as Calico writes it
    allocations: ordinals.map((ordinal) => (kept(ordinal) ? 0 : null)),
    unallocated: ordinals.filter((ordinal) => !kept(ordinal)),
    attributes: reserved === undefined ? [] : [{ handleId: reserved.handleId, secondary: { note: reserved.note } }],
    sequenceNumber: BigInt(Math.floor(nowMs)) * 1_000_000n,
    sequenceNumberForAllocation: {},
    deleted: false,
  };
}

export function addressAt(block: Block, ordinal: number): IpAddress {
  return addressPlus(cidrAddress(block.cidr), ordinal);
}

export function ordinalOf(block: Block, address: IpAddress): number {
  return Number(addressToBigInt(address) - addressToBigInt(cidrAddress(block.cidr)));
}

/** The entry an ordinal is allocated under; undefined = free. */
export function allocationAt(block: Block, ordinal: number): AllocationAttributes | undefined {
  const index = block.allocations[ordinal];
  return index === null || index === undefined ? undefined : (block.attributes[index] ?? {});
}

/** Some runtimes once stored handles with a trailing carriage return and more: only the part before it counts. */
export const sameHandle = (a: string | undefined, b: string): boolean => a?.split("\r", 1)[0] === b.split("\r", 1)[0];

export const isCooling = (entry: AllocationAttributes): boolean => entry.releasedAt !== undefined;

/** Nothing allocated but what its host reserves; a cooling address still counts. */
export function isEmpty(block: Block): boolean {
  return block.allocations.every(
    (index) => index === null || sameHandle(block.attributes[index]?.handleId, WINDOWS_RESERVED_HANDLE),
  );
}

/** A block that is empty and nobody's has no reason to be. */
export const isForgotten = (block: Block): boolean => block.affinity === undefined && isEmpty(block);

/** How many addresses a handle holds in this block. */
export function heldBy(block: Block, handleId: string): number {
  let count = 0;
  for (const index of block.allocations)
    if (index !== null && sameHandle(block.attributes[index]?.handleId, handleId)) count++;
  return count;
}

/** Takes up to `count` free addresses from the head of the queue, passing over reserved ones. */
export function takeFree(
  block: Block,
  count: number,
  owner: AllocationOwner,
  isReserved: (address: IpAddress) => boolean = () => false,
): { readonly block: Block; readonly ordinals: readonly number[] } {
  const ordinals: number[] = [];
  const left: number[] = [];
  // An address that is assigned, or twice in the queue, is not assigned again: other nodes write this block too.
  for (const ordinal of block.unallocated)
    if (block.allocations[ordinal] !== null || ordinals.includes(ordinal)) continue;
    else if (ordinals.length < count && !isReserved(addressAt(block, ordinal))) ordinals.push(ordinal);
    else left.push(ordinal);
  if (ordinals.length === 0) return { block, ordinals };
  return { block: allocate({ ...block, unallocated: left }, ordinals, owner), ordinals };
}

/** Takes one address that must be free. */
export function takeOrdinal(block: Block, ordinal: number, owner: AllocationOwner): Block {
  const unallocated = block.unallocated.filter((free) => free !== ordinal);
  return allocate({ ...block, unallocated }, [ordinal], owner);
}

function allocate(block: Block, ordinals: readonly number[], owner: AllocationOwner): Block {
  const entry: AllocationAttributes = {
    handleId: owner.handleId,
    secondary: owner.attributes,
  };
  const { attributes, index } = withEntry(block.attributes, entry);
  const allocations = [...block.allocations];
  const numbers = { ...block.sequenceNumberForAllocation };
  for (const ordinal of ordinals) {
    allocations[ordinal] = index;
    numbers[ordinal] = block.sequenceNumber;
  }
  return { ...block, allocations, attributes, sequenceNumberForAllocation: numbers };
}

function withEntry(attributes: readonly AllocationAttributes[], entry: AllocationAttributes) {
  const known = attributes.findIndex((other) => sameEntry(other, entry));
  return known >= 0 ? { attributes, index: known } : { attributes: [...attributes, entry], index: attributes.length };
}

function sameEntry(a: AllocationAttributes, b: AllocationAttributes): boolean {
  return (
    a.handleId === b.handleId &&
    a.releasedAt === b.releasedAt &&
    sameLabels(a.secondary, b.secondary) &&
    sameLabels(a.alternateOwnerAttributes, b.alternateOwnerAttributes)
  );
}

export function sameLabels(a: Labels | undefined, b: Labels | undefined): boolean {
  const [x, y] = [Object.entries(a ?? {}), b ?? {}];
  return x.length === Object.keys(y).length && x.every(([key, value]) => y[key] === value);
}

export interface FreeOptions {
  /** Keep the addresses from reuse for this long; 0 = free at once. */
  readonly cooldownSeconds: number;
  readonly nowMs: number;
}

/** Gives ordinals back: to the tail of the queue, or into cooldown. */
export function free(block: Block, ordinals: readonly number[], options: FreeOptions): Block {
  if (ordinals.length === 0) return block;
  if (options.cooldownSeconds > 0) {
    const entry = { releasedAt: new Date(options.nowMs).toISOString() };
    const { attributes, index } = withEntry(block.attributes, entry);
    const allocations = [...block.allocations];
    for (const ordinal of ordinals) allocations[ordinal] = index;
    return pruned({ ...block, allocations, attributes });
  }
  return release(block, ordinals);
}

function release(block: Block, ordinals: readonly number[]): Block {
  const allocations = [...block.allocations];
  for (const ordinal of ordinals) allocations[ordinal] = null;
  const given = new Set(ordinals.map(String));
  const numbers = Object.entries(block.sequenceNumberForAllocation);
  return pruned({
    ...block,
    allocations,
    // Given back together, they are given out again in the order of their addresses, however they were named.
    unallocated: [...block.unallocated, ...ordinals.toSorted((a, b) => a - b)],
    sequenceNumberForAllocation: Object.fromEntries(numbers.filter(([ordinal]) => !given.has(ordinal))),
  });
}

/** The block with its addresses freed that have cooled down long enough; the same object when there are none. */
export function freeExpiredCooldowns(block: Block, cooldownSeconds: number, nowMs: number): Block {
  const withExpiredCooldownsFreed = block.attributes.map(
    (entry) => entry.releasedAt !== undefined && Date.parse(entry.releasedAt) + cooldownSeconds * 1000 <= nowMs,
  );
  if (!withExpiredCooldownsFreed.includes(true)) return block;
  const ordinals = block.allocations.flatMap((index, ordinal) =>
    index !== null && withExpiredCooldownsFreed[index] === true ? [ordinal] : [],
  );
  return release(block, ordinals);
}

/** Drops entries nobody refers to any more and renumbers the rest, order kept. */
function pruned(block: Block): Block {
  const used = new Set(block.allocations);
  const renumbered = new Map<number, number>();
  const attributes = block.attributes.filter((_, index) => {
    if (used.has(index)) renumbered.set(index, renumbered.size);
    return used.has(index);
  });
  if (attributes.length === block.attributes.length) return block;
  return {
    ...block,
    attributes,
    allocations: block.allocations.map((index) => (index === null ? null : (renumbered.get(index) ?? null))),
  };
}
