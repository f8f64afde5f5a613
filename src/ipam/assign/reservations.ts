// Stores the addresses that IPReservations exclude from automatic assignment, as sorted, merged ranges.
import {
  addressToBigInt,
  type Cidr,
  cidrAddress,
  cidrSize,
  type IpAddress,
  type IpVersion,
  ipVersion,
} from "../../lib/ip/ip.ts";
import { ignoreUnreadable, readReservedCidrs, type Resource } from "../../model/index.ts";

interface Range {
  readonly from: bigint;
  /** The first address after the range. */
  readonly to: bigint;
}

export class Reservations {
  readonly #ranges: Readonly<Record<IpVersion, readonly Range[]>>;

  constructor(cidrs: readonly Cidr[]) {
    this.#ranges = { 4: merged(cidrs, 4), 6: merged(cidrs, 6) };
  }

  /** Entries that are not valid CIDRs are ignored. */
  static of(resources: readonly Resource[]): Reservations {
    return new Reservations(resources.flatMap((resource) => readReservedCidrs(resource, ignoreUnreadable)));
  }

  get isEmpty(): boolean {
    return this.#ranges[4].length === 0 && this.#ranges[6].length === 0;
  }

  has(address: IpAddress): boolean {
    return this.#rangeAt(addressToBigInt(address), ipVersion(address)) !== undefined;
  }

  /** If the whole block is reserved, returns the first address after the reserved range that contains it. */
  endOfCover(block: Cidr): bigint | undefined {
    const from = addressToBigInt(cidrAddress(block));
    const range = this.#rangeAt(from, ipVersion(block));
    return range !== undefined && range.to >= from + cidrSize(block) ? range.to : undefined;
  }

  covers(block: Cidr): boolean {
    return this.endOfCover(block) !== undefined;
  }

  /** Returns the number of reserved addresses in a prefix. */
  countIn(cidr: Cidr): bigint {
    const from = addressToBigInt(cidrAddress(cidr));
    const to = from + cidrSize(cidr);
    let count = 0n;
    for (const range of this.#ranges[ipVersion(cidr)]) {
      const [low, high] = [range.from > from ? range.from : from, range.to < to ? range.to : to];
      if (low < high) count += high - low;
    }
    return count;
  }

  #rangeAt(value: bigint, version: IpVersion): Range | undefined {
    const ranges = this.#ranges[version];
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ranges[middle]?.to ?? 0n) <= value) low = middle + 1;
      else high = middle;
    }
    const range = ranges[low];
    return range !== undefined && range.from <= value ? range : undefined;
  }
}

function merged(cidrs: readonly Cidr[], version: IpVersion): Range[] {
  const sorted = cidrs
    .filter((cidr) => ipVersion(cidr) === version)
    .map((cidr) => {
      const from = addressToBigInt(cidrAddress(cidr));
      return { from, to: from + cidrSize(cidr) };
    })
    .sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
  const ranges: { from: bigint; to: bigint }[] = [];
  for (const range of sorted) {
    const last = ranges.at(-1);
    if (last !== undefined && range.from <= last.to) last.to = range.to > last.to ? range.to : last.to;
    else ranges.push({ ...range });
  }
  return ranges;
}
