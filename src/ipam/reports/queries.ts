// Who has what: the addresses of a handle, and what is known about one address.
import { type Cidr, cidrContains, type IpAddress, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { Labels } from "../../model/index.ts";
import { addressAt, allocationAt, isCooling, ordinalOf, sameHandle } from "../blocks/block.ts";
import type { Context } from "../context.ts";
import { InCooldown, NotAssigned, UnknownHandle } from "../errors.ts";
import { poolAround, readPools } from "../assign/pools.ts";
import type { StoredBlock } from "../records.ts";

export interface Allocation {
  readonly address: IpAddress;
  readonly block: Cidr;
  readonly handleId?: string;
  /** The owner that is using it. */
  readonly attributes: Labels;
  /** Who takes it over when a virtual machine moves. */
  readonly alternateAttributes?: Labels;
  readonly sequenceNumber?: bigint;
}

/** In the order of the handle's blocks; a block that is gone is passed over. */
export async function addressesOfHandle(context: Context, handleId: string): Promise<readonly IpAddress[]> {
  const handle = await context.records.handle(handleId);
  if (handle === undefined) throw new UnknownHandle(handleId);
  const blocks = await Promise.all(Object.keys(handle.value.block).map((cidr) => context.records.block(cidr as Cidr)));
  return blocks.flatMap((block) =>
    (block?.value.allocations ?? []).flatMap((_, ordinal) =>
      block !== undefined && sameHandle(allocationAt(block.value, ordinal)?.handleId, handleId)
        ? [addressAt(block.value, ordinal)]
        : [],
    ),
  );
}

/** `NotAssigned` when free, `InCooldown` when it was given back lately. */
export async function allocationOf(context: Context, address: IpAddress): Promise<Allocation> {
  const stored = await blockAround(context, address);
  if (stored === undefined) throw new NotAssigned(address);
  const ordinal = ordinalOf(stored.value, address);
  const entry = allocationAt(stored.value, ordinal);
  if (entry === undefined) throw new NotAssigned(address);
  if (isCooling(entry)) throw new InCooldown(address, entry.releasedAt ?? "");
  const sequenceNumber = stored.value.sequenceNumberForAllocation[ordinal];
  return {
    address,
    block: stored.key.cidr,
    attributes: entry.secondary ?? {},
    handleId: entry.handleId,
    alternateAttributes: entry.alternateOwnerAttributes,
    sequenceNumber,
  };
}

/** The block an address lies in; looked for everywhere when its pool is gone. */
export async function blockAround(context: Context, address: IpAddress): Promise<StoredBlock | undefined> {
  const pool = poolAround(await readPools(context.records, ipVersion(address)), address);
  if (pool !== undefined) return context.records.block(maskCidr(address, pool.blockSize));
  return (await context.records.blocks(ipVersion(address))).find(({ key }) => cidrContains(key.cidr, address));
}
