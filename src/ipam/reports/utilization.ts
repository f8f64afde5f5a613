// Computes how full pools and blocks are. Counts are bigint, because an IPv6 pool has more addresses than a double can count.
import { type Cidr, cidrContains, cidrSize } from "../../lib/ip/ip.ts";
import { addressAt } from "../blocks/block.ts";
import type { Context } from "../context.ts";
import { readPools } from "../assign/pools.ts";
import type { StoredBlock } from "../records.ts";
import { Reservations } from "../assign/reservations.ts";

export interface Utilization {
  readonly cidr: Cidr;
  readonly capacity: bigint;
  /** Allocated or in cooldown. */
  readonly inUse: bigint;
  readonly reserved: bigint;
  /** Neither allocated nor reserved. */
  readonly available: bigint;
}
export interface PoolUtilization extends Utilization {
  readonly name: string;
  readonly blocks: readonly Utilization[];
}
export interface UtilizationReport {
  readonly pools: readonly PoolUtilization[];
  /** Blocks whose pool was deleted; empty unless the report covers all pools. */
  readonly orphans: readonly Utilization[];
}

/** @param selected names or CIDRs of pools; empty selects all */
export async function readUtilization(context: Context, selected: readonly string[] = []): Promise<UtilizationReport> {
  const [pools, blocks, reserved] = await Promise.all([
    readPools(context.records),
    context.records.blocks(),
    context.records.resources("IPReservation"),
  ]);
  const reservations = Reservations.of(reserved);
  const measured = blocks.map((block) => measureBlock(block, reservations));
  const chosen = pools.filter(
    (pool) => selected.length === 0 || selected.includes(pool.name) || selected.includes(pool.cidr),
  );
  return {
    pools: chosen.map((pool) => {
      const mine = measured.filter((block) => cidrContains(pool.cidr, block.cidr));
      const capacity = cidrSize(pool.cidr);
      const reservedCount = reservations.countIn(pool.cidr);
      const inUse = sum(mine, (block) => block.inUse);
      const usedButNotReserved = sum(mine, (block) => block.inUse - block.allocatedAndReserved);
      return {
        name: pool.name,
        cidr: pool.cidr,
        capacity,
        inUse,
        reserved: reservedCount,
        available: capacity - reservedCount - usedButNotReserved,
        blocks: mine,
      };
    }),
    orphans:
      selected.length > 0 ? [] : measured.filter((block) => !pools.some((pool) => cidrContains(pool.cidr, block.cidr))),
  };
}

type Measured = Utilization & { readonly allocatedAndReserved: bigint };

function measureBlock({ value }: StoredBlock, reservations: Reservations): Measured {
  const capacity = cidrSize(value.cidr);
  const inUse = capacity - BigInt(value.unallocated.length);
  const reserved = reservations.countIn(value.cidr);
  const free = reserved === 0n ? 0 : value.unallocated.filter((o) => reservations.has(addressAt(value, o))).length;
  const allocatedAndReserved = reserved - BigInt(free);
  const available = capacity - inUse - BigInt(free);
  return { cidr: value.cidr, capacity, inUse, reserved, available, allocatedAndReserved };
}

const sum = <T>(items: readonly T[], of: (item: T) => bigint): bigint =>
  items.reduce((total, item) => total + of(item), 0n);
