// Answers queries about allocations: the addresses of a handle, and the allocation of an address.
import { type Cidr, cidrContains, type IpAddress, ipVersion, maskCidr } from "../../lib/ip/ip.ts";
import type { Labels } from "../../model/index.ts";
import { addressAt, allocationAt, isCooling, ordinalOf, sameHandle } from "../blocks/block.ts";
import type { Context } from "../context.ts";
import { InCooldown, NotAssigned, UnknownHandle } from "../errors.ts";
import { poolContaining, readPools } from "../assign/pools.ts";
import type { StoredBlock } from "../records.ts";

export interface Allocation {
  readonly address: IpAddress;
  readonly block: Cidr;
  readonly handleId?: string;
  /** The active owner: the pod, tunnel or service that uses the address. */
  readonly attributes: Labels;
  /** The alternate owner: during a migration, the other pod of the virtual machine. */
  readonly alternateAttributes?: Labels;
  readonly sequenceNumber?: bigint;
}

/** Returns the addresses in the order of the handle's blocks. Blocks that do not exist are skipped. */
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

/** @throws NotAssigned, InCooldown */
export async function allocationOf(context: Context, address: IpAddress): Promise<Allocation> {
  const stored = await blockContaining(context, address);
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

/** Returns the block that contains an address. If the address is in no pool, all blocks are listed. */
export async function blockContaining(context: Context, address: IpAddress): Promise<StoredBlock | undefined> {
  const pool = poolContaining(await readPools(context.records, ipVersion(address)), address);
  if (pool !== undefined) return context.records.block(maskCidr(address, pool.blockSize));
  return (await context.records.blocks(ipVersion(address))).find(({ key }) => cidrContains(key.cidr, address));
}
