// Checks the invariants of IPAM's stored objects, which hold at every moment, also after crashes.
import type { Stored } from "../../datastore/index.ts";
import { type Cidr, cidrSize } from "../../lib/ip/ip.ts";
import type { Block, BlockAffinity, IpamHandle } from "../../model/index.ts";

/** Returns one sentence per violation. */
export function findViolations(items: readonly Stored[]): string[] {
  const blocks = new Map<Cidr, Block>();
  const handles = new Map<string, IpamHandle>();
  const affinities = new Map<string, BlockAffinity>();
  for (const { key, value } of items) {
    if (key.type === "block") blocks.set(key.cidr, value as Block);
    if (key.type === "ipamHandle") handles.set(key.handleId, value as IpamHandle);
    if (key.type === "blockAffinity")
      affinities.set(`${key.affinityType}:${key.host} ${key.cidr}`, value as BlockAffinity);
  }
  const faults: string[] = [];
  for (const block of blocks.values()) faults.push(...findBlockFaults(block), ...findHandleFaults(block, handles));
  for (const [name, affinity] of affinities) {
    const [owner = "", cidr = ""] = name.split(" ");
    if (affinity.state === "confirmed" && blocks.get(cidr as Cidr)?.affinity !== owner)
      faults.push(`affinity ${name} is confirmed, but the block's owner is ${blocks.get(cidr as Cidr)?.affinity}`);
  }
  return faults;
}

function findBlockFaults(block: Block): string[] {
  const faults: string[] = [];
  const fault = (text: string) => faults.push(`block ${block.cidr}: ${text}`);
  if (BigInt(block.allocations.length) !== cidrSize(block.cidr)) fault(`${block.allocations.length} allocations`);
  const free = new Set(block.unallocated);
  if (free.size !== block.unallocated.length) fault("an ordinal is queued twice");
  for (const [ordinal, index] of block.allocations.entries()) {
    if ((index === null) !== free.has(ordinal)) fault(`ordinal ${ordinal} is both or neither of free and allocated`);
    if (index !== null && block.attributes[index] === undefined) fault(`ordinal ${ordinal} has no entry ${index}`);
  }
  for (const index of block.attributes.keys())
    if (!block.allocations.includes(index)) fault(`no allocation refers to entry ${index}`);
  return faults;
}

function findHandleFaults(block: Block, handles: ReadonlyMap<string, IpamHandle>): string[] {
  const counts = new Map<string, number>();
  for (const index of block.allocations) {
    const handleId = index === null ? undefined : block.attributes[index]?.handleId;
    if (handleId !== undefined) counts.set(handleId, (counts.get(handleId) ?? 0) + 1);
  }
  return [...counts].flatMap(([handleId, count]) =>
    (handles.get(handleId)?.block[block.cidr] ?? 0) >= count
      ? []
      : [`handle ${handleId} counts ${handles.get(handleId)?.block[block.cidr] ?? 0} of ${count} in ${block.cidr}`],
  );
}
