// Allocates and frees addresses inside one block, as pure functions from block to block. Addresses are identified by ordinal,
// their offset in the block. Free ordinals are a queue: allocations take from the head and released ordinals are appended, so
// an address is reused as late as possible. Each allocation stores the block's sequence number at that time, which
// distinguishes successive allocations of one address.
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

/** The owner of a block: a node, or a virtual owner for the whole cluster (load balancers). */
export interface BlockOwner {
  readonly type: "host" | "virtual";
  readonly name: string;
}
export const formatBlockOwner = (owner: BlockOwner): string => `${owner.type}:${owner.name}`;

/** Addresses reserved at both ends of each new block of a host. */
export interface HostReserved {
  readonly startOfBlock: number;
  readonly endOfBlock: number;
  readonly handleId: string;
  readonly note: string;
}
export const WINDOWS_RESERVED_HANDLE = "windows-reserved-ipam-handle";

/** What is recorded with an allocation. */
export interface HandleAndAttributes {
  readonly handleId?: string;
  readonly attributes?: Labels;
}

const sizeOf = (cidr: Cidr): number => 2 ** (addressBits(ipVersion(cidr)) - cidrLength(cidr));

/**
 * Returns a new block; all addresses are free except those that the host reserves.
 * @param nowMs the time of the claim; sequence numbers start at this time in nanoseconds
 */
export function newBlock(cidr: Cidr, owner: BlockOwner, nowMs: number, reserved?: HostReserved): Block {
  const size = sizeOf(cidr);
  const isReserved = (ordinal: number) =>
    reserved !== undefined && (ordinal < reserved.startOfBlock || ordinal >= size - reserved.endOfBlock);
  const ordinals = Array.from({ length: size }, (_, ordinal) => ordinal);
  return {
    cidr,
    affinity: formatBlockOwner(owner),
    affinityClaimTime: new Date(nowMs).toISOString().replace(/\.\d+Z$/, "Z"), // whole seconds, as Calico writes it
    allocations: ordinals.map((ordinal) => (isReserved(ordinal) ? 0 : null)),
    unallocated: ordinals.filter((ordinal) => !isReserved(ordinal)),
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

/** Returns the handle and attributes of an allocated ordinal; undefined if it is free. */
export function allocationAt(block: Block, ordinal: number): AllocationAttributes | undefined {
  const index = block.allocations[ordinal];
  return index === null || index === undefined ? undefined : (block.attributes[index] ?? {});
}

/** Some runtimes stored handle IDs followed by a carriage return and other text. Only the part before it is compared. */
export const sameHandle = (a: string | undefined, b: string): boolean => a?.split("\r", 1)[0] === b.split("\r", 1)[0];

export const isCooling = (entry: AllocationAttributes): boolean => entry.releasedAt !== undefined;

/** True if nothing is allocated except the host's reserved addresses. An address in cooldown counts as allocated. */
export function isEmpty(block: Block): boolean {
  return block.allocations.every(
    (index) => index === null || sameHandle(block.attributes[index]?.handleId, WINDOWS_RESERVED_HANDLE),
  );
}

/** Such a block is deleted. */
export const isUnownedAndEmpty = (block: Block): boolean => block.affinity === undefined && isEmpty(block);

/** Returns the number of a handle's addresses in this block. */
export function countByHandle(block: Block, handleId: string): number {
  let count = 0;
  for (const index of block.allocations)
    if (index !== null && sameHandle(block.attributes[index]?.handleId, handleId)) count++;
  return count;
}

/** Takes up to `count` free addresses from the head of the queue, and skips reserved ones. */
export function takeFree(
  block: Block,
  count: number,
  allocation: HandleAndAttributes,
  isReserved: (address: IpAddress) => boolean = () => false,
): { readonly block: Block; readonly ordinals: readonly number[] } {
  const ordinals: number[] = [];
  const left: number[] = [];
  // Other programs write this block too, so an ordinal that is allocated, or queued twice, must not be allocated again.
  for (const ordinal of block.unallocated)
    if (block.allocations[ordinal] !== null || ordinals.includes(ordinal)) continue;
    else if (ordinals.length < count && !isReserved(addressAt(block, ordinal))) ordinals.push(ordinal);
    else left.push(ordinal);
  if (ordinals.length === 0) return { block, ordinals };
  return { block: allocate({ ...block, unallocated: left }, ordinals, allocation), ordinals };
}

/** Takes one address, which must be free. */
export function takeOrdinal(block: Block, ordinal: number, allocation: HandleAndAttributes): Block {
  const unallocated = block.unallocated.filter((free) => free !== ordinal);
  return allocate({ ...block, unallocated }, [ordinal], allocation);
}

function allocate(block: Block, ordinals: readonly number[], allocation: HandleAndAttributes): Block {
  const entry: AllocationAttributes = { handleId: allocation.handleId, secondary: allocation.attributes };
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
  /** The addresses are not reused for this long; 0 frees them immediately. */
  readonly cooldownSeconds: number;
  readonly nowMs: number;
}

/** Appends ordinals to the queue of free ones, or puts them into cooldown. */
export function releaseOrdinals(block: Block, ordinals: readonly number[], options: FreeOptions): Block {
  if (ordinals.length === 0) return block;
  if (options.cooldownSeconds > 0) {
    const entry = { releasedAt: new Date(options.nowMs).toISOString() };
    const { attributes, index } = withEntry(block.attributes, entry);
    const allocations = [...block.allocations];
    for (const ordinal of ordinals) allocations[ordinal] = index;
    return withoutUnusedEntries({ ...block, allocations, attributes });
  }
  return freeOrdinals(block, ordinals);
}

function freeOrdinals(block: Block, ordinals: readonly number[]): Block {
  const allocations = [...block.allocations];
  for (const ordinal of ordinals) allocations[ordinal] = null;
  const freed = new Set(ordinals.map(String));
  const numbers = Object.entries(block.sequenceNumberForAllocation);
  return withoutUnusedEntries({
    ...block,
    allocations,
    // Sorted, so that the order of later assignments does not depend on the order of the release request.
    unallocated: [...block.unallocated, ...ordinals.toSorted((a, b) => a - b)],
    sequenceNumberForAllocation: Object.fromEntries(numbers.filter(([ordinal]) => !freed.has(ordinal))),
  });
}

/** Frees the addresses whose cooldown has expired. Returns the same object if there are none. */
export function freeExpiredCooldowns(block: Block, cooldownSeconds: number, nowMs: number): Block {
  const isExpired = block.attributes.map(
    (entry) => entry.releasedAt !== undefined && Date.parse(entry.releasedAt) + cooldownSeconds * 1000 <= nowMs,
  );
  if (!isExpired.includes(true)) return block;
  const ordinals = block.allocations.flatMap((index, ordinal) =>
    index !== null && isExpired[index] === true ? [ordinal] : [],
  );
  return freeOrdinals(block, ordinals);
}

/** Removes entries that no allocation refers to, and renumbers the others in order. */
function withoutUnusedEntries(block: Block): Block {
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
