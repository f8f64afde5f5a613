// Records which pods use an address that outlives its pod. While a virtual machine migrates, the source pod is the active owner
// and the target pod the alternate owner; afterwards they are swapped. Every change is one compare-and-swap of the block.
import { type Cidr, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import type { AllocationAttributes, Block, Labels } from "../../model/index.ts";
import { addressAt, allocationAt, isCooling, ordinalOf, sameHandle, sameLabels } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { BadRequest, NotAssigned, StaleRelease } from "../errors.ts";
import { blockContaining } from "../reports/queries.ts";
import type { StoredBlock } from "../records.ts";

export interface OwnerAttributesChange {
  readonly address: IpAddress;
  readonly handleId: string;
  /** null removes the owner. */
  readonly active?: Labels | null;
  readonly alternate?: Labels | null;
  /** Reject the change unless this is the current owner; null means no owner. */
  readonly expectActive?: Labels | null;
  readonly expectAlternate?: Labels | null;
}

export interface OwnerAttributes {
  /** The pod that uses the address. */
  readonly active?: Labels;
  /** The pod that will use it after a migration or, after the swap, the pod that used it before. */
  readonly alternate?: Labels;
}
export interface OwnedAddress extends OwnerAttributes {
  readonly address: IpAddress;
}

export async function setOwnerAttributes(context: Context, change: OwnerAttributesChange): Promise<void> {
  if (change.active === undefined && change.alternate === undefined)
    throw new BadRequest(`address ${change.address}: neither the active nor the alternate owner is to change`);
  await retryOnConflict(context, `owners of ${change.address}`, async () => {
    const stored = await blockContaining(context, change.address);
    const ordinal = stored === undefined ? -1 : ordinalOf(stored.value, change.address);
    const entry = stored === undefined ? undefined : allocationAt(stored.value, ordinal);
    if (stored === undefined || entry === undefined || isCooling(entry)) throw new NotAssigned(change.address);
    checkExpectations(change, entry);
    const { active = entry.secondary, alternate = entry.alternateOwnerAttributes } = change;
    const owners = { active: active ?? undefined, alternate: alternate ?? undefined };
    const value = withEntryAt(stored.value, ordinal, ownedBy(entry, owners));
    return (await writeAll(context, [{ stored, value }])) ? true : undefined;
  });
}

function checkExpectations(change: OwnerAttributesChange, entry: AllocationAttributes): void {
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
 * Changes the owners of all addresses of a handle: in one transaction if the datastore has transactions, otherwise block by
 * block.
 * @param change called again after a conflict
 * @returns the handle's addresses with their new owners, IPv4 first; none if the handle does not exist
 */
export async function updateOwnerAttributes(
  context: Context,
  handleId: string,
  change: (owners: OwnerAttributes) => OwnerAttributes,
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

function changeIn(stored: StoredBlock, handleId: string, change: (owners: OwnerAttributes) => OwnerAttributes) {
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

/** @returns false if another process wrote one of the blocks first */
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

/** Calico expects the fields of missing owners to be absent, not empty. */
function ownedBy(entry: AllocationAttributes, { active = {}, alternate = {} }: OwnerAttributes): AllocationAttributes {
  const { secondary: _active, alternateOwnerAttributes: _alternate, ...rest } = entry;
  return {
    ...rest,
    ...(Object.keys(active).length === 0 ? {} : { secondary: active }),
    ...(Object.keys(alternate).length === 0 ? {} : { alternateOwnerAttributes: alternate }),
  };
}

/** Replaces the entry of one ordinal. Other ordinals that share the old entry keep it. */
function withEntryAt(block: Block, ordinal: number, entry: AllocationAttributes): Block {
  const index = block.allocations[ordinal];
  const isShared = block.allocations.some((other, i) => i !== ordinal && other === index);
  if (isShared) {
    const allocations = block.allocations.map((old, i) => (i === ordinal ? block.attributes.length : old));
    return { ...block, allocations, attributes: [...block.attributes, entry] };
  }
  return { ...block, attributes: block.attributes.map((old, i) => (i === index ? entry : old)) };
}
