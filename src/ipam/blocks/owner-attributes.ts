// Who uses an address that outlives its pod. While a virtual machine moves, the pod it leaves is the active owner and
// the pod it goes to the alternate one; then they are swapped. Every change is one compare-and-swap of the block.
import { type Cidr, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import type { AllocationAttributes, Block, Labels } from "../../model/index.ts";
import { addressAt, allocationAt, isCooling, ordinalOf, sameHandle, sameLabels } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { BadRequest, NotAssigned, StaleRelease } from "../errors.ts";
import { blockAround } from "../reports/queries.ts";
import type { StoredBlock } from "../records.ts";

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

export interface Owners {
  /** Who uses it. */
  readonly active?: Labels;
  /** Who takes it over, or has just handed it over. */
  readonly alternate?: Labels;
}
export interface OwnedAddress extends Owners {
  readonly address: IpAddress;
}

export async function setOwners(context: Context, change: OwnerChange): Promise<void> {
  if (change.active === undefined && change.alternate === undefined)
    throw new BadRequest(`address ${change.address}: neither the active nor the alternate owner is to change`);
  await retryOnConflict(context, `owners of ${change.address}`, async () => {
    const stored = await blockAround(context, change.address);
    const ordinal = stored === undefined ? -1 : ordinalOf(stored.value, change.address);
    const entry = stored === undefined ? undefined : allocationAt(stored.value, ordinal);
    if (stored === undefined || entry === undefined || isCooling(entry)) throw new NotAssigned(change.address);
    check(change, entry);
    const { active = entry.secondary, alternate = entry.alternateOwnerAttributes } = change;
    const owners = { active: active ?? undefined, alternate: alternate ?? undefined };
    const value = withEntryAt(stored.value, ordinal, ownedBy(entry, owners));
    return (await writeAll(context, [{ stored, value }])) ? true : undefined;
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

/**
 * Changes the owners of everything a handle holds: all at once where the datastore can, else block by block.
 * @param change asked again when somebody was faster
 * @returns the handle's addresses as they are then, IPv4 first; none when there is no such handle
 */
export async function changeOwners(
  context: Context,
  handleId: string,
  change: (owners: Owners) => Owners,
): Promise<readonly OwnedAddress[]> {
  const { records } = context;
  return retryOnConflict(context, `owners of ${handleId}`, async () => {
    const handle = await records.handle(handleId);
    const cidrs = Object.keys(handle?.value.block ?? {}) as Cidr[];
    const blocks = (await Promise.all(cidrs.map((cidr) => records.block(cidr)))).flatMap((block) => block ?? []);
    const changes = blocks.map((stored) => changeIn(stored, handleId, change));
    if (!(await writeAll(context, changes))) return undefined;
    return changes.flatMap(({ owned }) => owned).toSorted((a, b) => ipVersion(a.address) - ipVersion(b.address));
  });
}

function changeIn(stored: StoredBlock, handleId: string, change: (owners: Owners) => Owners) {
  const owned: OwnedAddress[] = [];
  let { value } = stored;
  for (const ordinal of value.allocations.keys()) {
    const entry = allocationAt(value, ordinal);
    if (entry === undefined || !sameHandle(entry.handleId, handleId)) continue;
    const { secondary: active, alternateOwnerAttributes: alternate } = entry;
    const after = change({ active, alternate });
    owned.push({ address: addressAt(value, ordinal), ...after });
    if (sameLabels(active, after.active) && sameLabels(alternate, after.alternate)) continue;
    value = withEntryAt(value, ordinal, ownedBy(entry, after));
  }
  return { stored, value, owned };
}

/** False when somebody else wrote one of the blocks first. */
async function writeAll(
  context: Context,
  blocks: readonly { readonly stored: StoredBlock; readonly value: Block }[],
): Promise<boolean> {
  const changed = blocks.filter(({ stored, value }) => value !== stored.value);
  if (changed.length === 0) return true;
  try {
    const outcome = await context.records.transactBlocks(changed, undefined, []);
    if (outcome !== undefined) return outcome.done;
    for (const { stored, value } of changed) await context.records.updateBlock(stored, value);
    return true;
  } catch (error) {
    if (isConflict(error)) return false;
    throw error;
  }
}

/** Nobody is written as nothing at all, as others read it. */
function ownedBy(entry: AllocationAttributes, { active = {}, alternate = {} }: Owners): AllocationAttributes {
  const { secondary: _active, alternateOwnerAttributes: _alternate, ...rest } = entry;
  return {
    ...rest,
    ...(Object.keys(active).length === 0 ? {} : { secondary: active }),
    ...(Object.keys(alternate).length === 0 ? {} : { alternateOwnerAttributes: alternate }),
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
