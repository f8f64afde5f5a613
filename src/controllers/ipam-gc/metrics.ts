// Metrics of pools, blocks and released addresses, by pool and node. The values are computed when they are read.
import { type Cidr, cidrContains, cidrSize } from "../../lib/ip/ip.ts";
import type { MetricLabels, MetricsRegistry } from "../../lib/metrics.ts";
import { ignoreUnreadable, type IpPool, readPool, readReservedCidrs, type Resource } from "../../model/index.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import type { AllocationIndex, TrackedAllocation } from "./allocation-index.ts";

const NO_POOL = "no_ippool";
const NO_AFFINITY = "no_affinity";
const UNKNOWN_NODE = "unknown_node";
type Count = Map<string, { readonly labels: MetricLabels; value: number }>;

export class AddressMetrics {
  readonly #cache: DatastoreCache;
  readonly #index: AllocationIndex;
  readonly #reclaimed: Count = new Map();

  constructor(registry: MetricsRegistry, cache: DatastoreCache, index: AllocationIndex) {
    this.#cache = cache;
    this.#index = index;
    const gauge = (name: string, help: string, read: () => Iterable<[MetricLabels, number]>) =>
      registry.collect(name, help, "gauge", read);
    gauge("ipam_allocations_in_use", "Addresses in use, by pool and node", () => this.#allocations(() => true));
    gauge("ipam_allocations_borrowed", "Addresses in use from a block of another node", () =>
      this.#allocations(({ borrowed }) => borrowed, "in pools"),
    );
    gauge("ipam_allocations_gc_candidates", "Addresses that appear to be unused", () =>
      this.#allocations(({ suspectedAtMs }) => suspectedAtMs !== undefined, "in pools"),
    );
    registry.collect("ipam_allocations_gc_reclamations", "Addresses released because they were unused", "counter", () =>
      this.#reclamations(),
    );
    gauge("ipam_blocks", "Blocks, by pool and node", () => this.#blocks());
    gauge("ipam_allocations_per_node", "Addresses in use on each node", () => perNode(this.#allocations(() => true)));
    gauge("ipam_allocations_borrowed_per_node", "Addresses each node uses from blocks of other nodes", () =>
      perNode(this.#allocations(({ borrowed }) => borrowed)),
    );
    gauge("ipam_blocks_per_node", "Blocks of each node", () => perNode(this.#blocks()));
    gauge("ipam_ippool_size", "Addresses of each pool", () =>
      this.#pools().map(({ name, cidr }) => [{ ippool: name }, Number(cidrSize(cidr))]),
    );
    gauge("ipam_ippool_reserved", "Reserved addresses of each pool", () =>
      this.#pools().map(({ name, cidr }) => [{ ippool: name }, reservedIn(cidr, this.#cache.reservations.values())]),
    );
  }

  onReleased({ block, node }: TrackedAllocation): void {
    increment(this.#reclaimed, { ippool: this.#poolOf(block), node: node === "" ? UNKNOWN_NODE : node });
  }

  #pools(): readonly IpPool[] {
    return [...this.#cache.pools.values()].flatMap((pool) => readPool(pool, ignoreUnreadable) ?? []);
  }

  #poolOf(block: Cidr): string {
    return this.#pools().find(({ cidr }) => cidrContains(cidr, block))?.name ?? NO_POOL;
  }

  /** @param zeros if set, nodes with a block in a pool are also counted with the value 0 */
  #allocations(
    counts: (allocation: TrackedAllocation) => boolean,
    zeros?: "in pools",
  ): Iterable<[MetricLabels, number]> {
    const count: Count = new Map();
    for (const { cidr, host, allocations } of this.#index.blocks()) {
      const ippool = this.#poolOf(cidr);
      if (zeros !== undefined && host !== undefined && ippool !== NO_POOL) increment(count, { ippool, node: host }, 0);
      for (const allocation of allocations)
        if (counts(allocation))
          increment(count, { ippool, node: allocation.node === "" ? UNKNOWN_NODE : allocation.node });
    }
    return rows(count);
  }

  #blocks(): Iterable<[MetricLabels, number]> {
    const count: Count = new Map();
    for (const { cidr, host } of this.#index.blocks())
      increment(count, { ippool: this.#poolOf(cidr), node: host ?? NO_AFFINITY });
    return rows(count);
  }

  /** Without the counters of nodes that no longer have addresses or blocks. */
  #reclamations(): Iterable<[MetricLabels, number]> {
    return rows(this.#reclaimed).filter(([labels]) => this.#index.hasNode(labels["node"] ?? ""));
  }
}

function increment(count: Count, labels: MetricLabels, by = 1): void {
  const key = JSON.stringify(labels);
  const cell = count.get(key);
  if (cell === undefined) count.set(key, { labels, value: by });
  else cell.value += by;
}

const rows = (count: Count): [MetricLabels, number][] =>
  [...count.values()].map(({ labels, value }) => [labels, value]);

function perNode(rowsWithPool: Iterable<[MetricLabels, number]>): [MetricLabels, number][] {
  const count: Count = new Map();
  for (const [labels, value] of rowsWithPool) increment(count, { node: labels["node"] ?? "" }, value);
  return rows(count);
}

/** Counts an address once, even if several reservations contain it. */
function reservedIn(pool: Cidr, reservations: Iterable<Resource>): number {
  const inside = [...reservations]
    .flatMap((reservation) => readReservedCidrs(reservation, ignoreUnreadable))
    .flatMap((cidr) => (cidrContains(cidr, pool) ? [pool] : cidrContains(pool, cidr) ? [cidr] : []));
  const outermost = [...new Set(inside)].filter(
    (cidr, _, all) => !all.some((other) => other !== cidr && cidrContains(other, cidr)),
  );
  return outermost.reduce((sum, cidr) => sum + Number(cidrSize(cidr)), 0);
}
