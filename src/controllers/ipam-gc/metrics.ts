// How full the pools are and what was collected, per pool and node, counted when somebody asks.
import { type Cidr, cidrContains, cidrSize, tryParseCidr } from "../../lib/ip.ts";
import type { MetricLabels, MetricsRegistry } from "../../lib/metrics.ts";
import type { Resource, SpecOf } from "../../model/index.ts";
import type { Feed } from "../feed.ts";
import type { Ledger, Tracked } from "./ledger.ts";

const NO_POOL = "no_ippool";
const NO_AFFINITY = "no_affinity";
const UNKNOWN_NODE = "unknown_node";
type Count = Map<string, { readonly labels: MetricLabels; value: number }>;

export class AddressMetrics {
  readonly #feed: Feed;
  readonly #ledger: Ledger;
  readonly #reclaimed: Count = new Map();

  constructor(registry: MetricsRegistry, feed: Feed, ledger: Ledger) {
    this.#feed = feed;
    this.#ledger = ledger;
    const gauge = (name: string, help: string, read: () => Iterable<[MetricLabels, number]>) =>
      registry.collect(name, help, "gauge", read);
    gauge("ipam_allocations_in_use", "Addresses in use, by pool and node", () => this.#allocations(() => true));
    gauge("ipam_allocations_borrowed", "Addresses in use out of another node's block", () =>
      this.#allocations(({ borrowed }) => borrowed, "in pools"),
    );
    gauge("ipam_allocations_gc_candidates", "Addresses that nobody seems to use", () =>
      this.#allocations(({ suspectedAtMs }) => suspectedAtMs !== undefined, "in pools"),
    );
    registry.collect(
      "ipam_allocations_gc_reclamations",
      "Addresses given back because nobody used them",
      "counter",
      () => this.#reclamations(),
    );
    gauge("ipam_blocks", "Blocks, by pool and node", () => this.#blocks());
    gauge("ipam_allocations_per_node", "Addresses in use on each node", () => perNode(this.#allocations(() => true)));
    gauge("ipam_allocations_borrowed_per_node", "Addresses each node uses out of another's block", () =>
      perNode(this.#allocations(({ borrowed }) => borrowed)),
    );
    gauge("ipam_blocks_per_node", "Blocks of each node", () => perNode(this.#blocks()));
    gauge("ipam_ippool_size", "Addresses of each pool", () =>
      this.#pools().map(({ name, cidr }) => [{ ippool: name }, Number(cidrSize(cidr))]),
    );
    gauge("ipam_ippool_reserved", "Addresses of each pool that are kept back", () =>
      this.#pools().map(({ name, cidr }) => [{ ippool: name }, reservedIn(cidr, this.#feed.reservations.values())]),
    );
  }

  onReleased({ block, node }: Tracked): void {
    increment(this.#reclaimed, { ippool: this.#poolOf(block), node: node === "" ? UNKNOWN_NODE : node });
  }

  #pools(): { name: string; cidr: Cidr }[] {
    return [...this.#feed.pools].flatMap(([name, pool]) => {
      const cidr = tryParseCidr((pool.spec as SpecOf<"IPPool">).cidr);
      return cidr === undefined ? [] : [{ name, cidr }];
    });
  }

  #poolOf(block: Cidr): string {
    return this.#pools().find(({ cidr }) => cidrContains(cidr, block))?.name ?? NO_POOL;
  }

  /** Of nodes in pools also the zeros, where they say that all is well. */
  #allocations(counts: (allocation: Tracked) => boolean, zeros?: "in pools"): Iterable<[MetricLabels, number]> {
    const count: Count = new Map();
    for (const { cidr, host, allocations } of this.#ledger.blocks()) {
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
    for (const { cidr, host } of this.#ledger.blocks())
      increment(count, { ippool: this.#poolOf(cidr), node: host ?? NO_AFFINITY });
    return rows(count);
  }

  /** A node that has left takes its figures with it. */
  #reclamations(): Iterable<[MetricLabels, number]> {
    return rows(this.#reclaimed).filter(([labels]) => this.#ledger.hasNode(labels["node"] ?? ""));
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

function perNode(given: Iterable<[MetricLabels, number]>): [MetricLabels, number][] {
  const count: Count = new Map();
  for (const [labels, value] of given) increment(count, { node: labels["node"] ?? "" }, value);
  return rows(count);
}

/** Each address once, however many reservations hold it. */
function reservedIn(pool: Cidr, reservations: Iterable<Resource>): number {
  const inside = [...reservations]
    .flatMap(({ spec }) => (spec as SpecOf<"IPReservation">).reservedCIDRs ?? [])
    .flatMap((text) => tryParseCidr(text) ?? [])
    .flatMap((cidr) => (cidrContains(cidr, pool) ? [pool] : cidrContains(pool, cidr) ? [cidr] : []));
  const whole = [...new Set(inside)].filter(
    (cidr, _, all) => !all.some((other) => other !== cidr && cidrContains(other, cidr)),
  );
  return whole.reduce((sum, cidr) => sum + Number(cidrSize(cidr)), 0);
}
