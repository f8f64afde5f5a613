// Who uses an address that outlives its pod. While a virtual machine moves, the pod it leaves is the active owner and
// the pod it goes to the alternate one; then they are swapped. Every change is one compare-and-swap of the block.
import type { IpAddress } from "../lib/ip.ts";
import type { AllocationAttributes, Block, Labels } from "../model/index.ts";
import { allocationAt, isCooling, ordinalOf, sameHandle, sameLabels } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { BadRequest, NotAssigned, StaleRelease } from "./errors.ts";
import { blockAround } from "./queries.ts";

export interface OwnerChange {
  readonly address: IpAddress;
  readonly handleId: string;
  /** null clears. */
  readonly active?: Labels | null;
  readonly alternate?: Labels | null;
  /** Only when the present owner is this one; null = nobody. */
  readonly expectActive?: Labels | null;
  readonly expectAlternate?: Labels | null;
}

export async function setOwners(context: Context, change: OwnerChange): Promise<void> {
  if (change.active === undefined && change.alternate === undefined)
    throw new BadRequest(`address ${change.address}: neither the active nor the alternate owner is to change`);
  await untilWon(context, `owners of ${change.address}`, async () => {
    const stored = await blockAround(context, change.address);
    const ordinal = stored === undefined ? -1 : ordinalOf(stored.value, change.address);
    const entry = stored === undefined ? undefined : allocationAt(stored.value, ordinal);
    if (stored === undefined || entry === undefined || isCooling(entry)) throw new NotAssigned(change.address);
    check(change, entry);
    const value = withEntryAt(stored.value, ordinal, changed(change, entry));
    try {
      await context.records.updateBlock(stored, value);
      return true;
    } catch (error) {
      if (isLost(error)) return undefined;
      throw error;
    }
  });
}

function check(change: OwnerChange, entry: AllocationAttributes): void {
  if (!sameHandle(entry.handleId, change.handleId))
    throw new StaleRelease(change.address, "BadHandle", change.handleId, entry.handleId ?? "no handle");
  const mismatch = (expected: Labels | null | undefined, present: Labels | undefined) =>
    expected !== undefined && !sameLabels(expected ?? {}, present);
  if (
    mismatch(change.expectActive, entry.secondary) ||
    mismatch(change.expectAlternate, entry.alternateOwnerAttributes)
  )
    throw new StaleRelease(change.address, "BadOwner", "the expected owner", JSON.stringify(entry.secondary ?? {}));
}

function changed(change: OwnerChange, entry: AllocationAttributes): AllocationAttributes {
  const { secondary, alternateOwnerAttributes, ...rest } = entry;
  const active = change.active === undefined ? secondary : (change.active ?? undefined);
  const alternate = change.alternate === undefined ? alternateOwnerAttributes : (change.alternate ?? undefined);
  return {
    ...rest,
    ...(active === undefined ? {} : { secondary: active }),
    ...(alternate === undefined ? {} : { alternateOwnerAttributes: alternate }),
  };
}

/** The block with one ordinal's entry replaced; other ordinals that share the old entry keep it. */
function withEntryAt(block: Block, ordinal: number, entry: AllocationAttributes): Block {
  const index = block.allocations[ordinal];
  const isShared = block.allocations.some((other, i) => i !== ordinal && other === index);
  if (isShared) {
    const allocations = block.allocations.map((old, i) => (i === ordinal ? block.attributes.length : old));
    return { ...block, allocations, attributes: [...block.attributes, entry] };
  }
  return { ...block, attributes: block.attributes.map((old, i) => (i === index ? entry : old)) };
}
