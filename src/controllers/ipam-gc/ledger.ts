// Every address that is given out, by block, node and handle, with what the collector thinks of it. Follows the blocks as
// the feed tells of them; an address that went to somebody else starts again without suspicion.
import type { Cidr, IpAddress } from "../../lib/ip.ts";
import { type AllocationRecord, allocationsIn, ATTRIBUTE, isTunnelType, machineOfHandle } from "../../ipam/index.ts";
import type { Block, Labels } from "../../model/index.ts";

export interface Tracked {
  readonly id: string;
  readonly address: IpAddress;
  readonly handleId: string;
  readonly block: Cidr;
  /** The node it was given on; empty when nobody noted it. */
  readonly node: string;
  readonly attributes: Labels;
  readonly sequenceNumber?: bigint;
  readonly borrowed: boolean;
  /** When it was first seen that nobody uses it. */
  suspectedAtMs: number | undefined;
  /** Sure enough to be released. */
  isLeak: boolean;
  /** A leak that is released although other addresses of its handle are in use. */
  isSurplus: boolean;
}

export const isTunnel = ({ attributes }: Tracked): boolean => isTunnelType(attributes[ATTRIBUTE.type]);
export const isPod = ({ attributes }: Tracked): boolean =>
  (attributes[ATTRIBUTE.namespace] ?? "") !== "" && (attributes[ATTRIBUTE.pod] ?? "") !== "";
export const isMachine = ({ attributes }: Pick<Tracked, "attributes">): boolean =>
  attributes[ATTRIBUTE.vmiName] !== undefined;
const isService = ({ attributes, affinity }: AllocationRecord): boolean =>
  attributes[ATTRIBUTE.service] !== undefined || affinity?.startsWith("virtual:") === true;

interface BlockEntry {
  readonly block: Block;
  readonly host: string | undefined;
  readonly allocations: ReadonlyMap<string, Tracked>;
  /** Since when nothing is given from it. */
  emptySinceMs: number | undefined;
}

export class Ledger {
  readonly #blocks = new Map<string, BlockEntry>();
  readonly #byNode = new Map<string, Set<Tracked>>();
  readonly #byHandle = new Map<string, Set<Tracked>>();
  readonly #blocksOf = new Map<string, Set<string>>();

  /** @returns the nodes that are concerned */
  setBlock(cidr: string, block: Block | undefined): ReadonlySet<string> {
    const before = this.#blocks.get(cidr);
    const concerned = new Set<string>();
    const host = /^host:(.+)$/.exec(block?.affinity ?? "")?.[1];
    const allocations = new Map<string, Tracked>();
    for (const record of block === undefined ? [] : allocationsIn(block)) {
      const tracked = this.#track(record, host, before?.allocations);
      if (tracked !== undefined) allocations.set(tracked.id, tracked);
    }
    for (const [id, old] of before?.allocations ?? [])
      if (allocations.get(id) !== old) {
        remove(this.#byNode, old.node, old);
        remove(this.#byHandle, old.handleId, old);
        concerned.add(old.node);
      }
    for (const [id, tracked] of allocations)
      if (before?.allocations.get(id) !== tracked) {
        add(this.#byNode, tracked.node, tracked);
        add(this.#byHandle, tracked.handleId, tracked);
        concerned.add(tracked.node);
      }
    this.#setHost(cidr, before?.host, host, concerned);
    if (block === undefined) this.#blocks.delete(cidr);
    else {
      const isEmpty = block.allocations.every((index) => index === null);
      this.#blocks.set(cidr, { block, host, allocations, emptySinceMs: isEmpty ? before?.emptySinceMs : undefined });
    }
    return concerned;
  }

  #setHost(cidr: string, before: string | undefined, after: string | undefined, concerned: Set<string>): void {
    if (before === after) return;
    if (before !== undefined) {
      remove(this.#blocksOf, before, cidr);
      concerned.add(before);
    }
    if (after !== undefined) {
      add(this.#blocksOf, after, cidr);
      concerned.add(after);
    }
  }

  /** The same object for the same allocation; a new one when the address was given again or handed over. */
  #track(
    record: AllocationRecord,
    host: string | undefined,
    before: ReadonlyMap<string, Tracked> | undefined,
  ): Tracked | undefined {
    const { handleId, address, block, sequenceNumber, borrowed } = record;
    if (handleId === undefined || record.coolingDown || isService(record)) return undefined;
    const id = `${handleId}/${address}`;
    const known = before?.get(id);
    const attributes = attributesOf(record, handleId);
    const node = attributes[ATTRIBUTE.node] ?? host ?? "";
    const isSameOwner = known?.node === node && known.attributes[ATTRIBUTE.pod] === attributes[ATTRIBUTE.pod];
    if (known !== undefined && known.sequenceNumber === sequenceNumber && isSameOwner) return known;
    return {
      id,
      address,
      handleId,
      block,
      node,
      attributes,
      borrowed,
      ...(sequenceNumber === undefined ? {} : { sequenceNumber }),
      suspectedAtMs: undefined,
      isLeak: false,
      isSurplus: false,
    };
  }

  /** Nodes that have addresses or blocks. */
  nodes(): ReadonlySet<string> {
    return new Set([...this.#byNode.keys(), ...this.#blocksOf.keys()]);
  }
  hasNode(node: string): boolean {
    return this.#byNode.has(node) || this.#blocksOf.has(node);
  }
  allocationsOf(node: string): Iterable<Tracked> {
    return this.#byNode.get(node) ?? [];
  }
  blocksOf(node: string): ReadonlySet<string> {
    return this.#blocksOf.get(node) ?? new Set();
  }
  withHandle(handleId: string): Iterable<Tracked> {
    return this.#byHandle.get(handleId) ?? [];
  }
  *blocks(): Iterable<{
    readonly cidr: Cidr;
    readonly block: Block;
    readonly host: string | undefined;
    readonly allocations: Iterable<Tracked>;
  }> {
    for (const { block, host, allocations } of this.#blocks.values())
      yield { cidr: block.cidr, block, host, allocations: allocations.values() };
  }

  /** Blocks of a node that have been empty for longer than the grace; the first look only notes the time. */
  emptyBlocks(node: string, nowMs: number, graceMs: number): readonly Cidr[] {
    const long: Cidr[] = [];
    for (const cidr of [...this.blocksOf(node)].sort()) {
      const entry = this.#blocks.get(cidr);
      if (entry === undefined || entry.block.allocations.some((index) => index !== null)) continue;
      entry.emptySinceMs ??= nowMs;
      if (nowMs - entry.emptySinceMs > graceMs) long.push(entry.block.cidr);
    }
    return long;
  }
}

function add<V>(map: Map<string, Set<V>>, key: string, value: V): void {
  const values = map.get(key);
  if (values === undefined) map.set(key, new Set([value]));
  else values.add(value);
}

function remove<V>(map: Map<string, Set<V>>, key: string, value: V): void {
  const values = map.get(key);
  values?.delete(value);
  if (values?.size === 0) map.delete(key);
}

/** While a machine is off no pod owns its addresses: then their handle tells whose they are. */
function attributesOf({ attributes }: AllocationRecord, handleId: string): Labels {
  const machine = Object.keys(attributes).length === 0 ? machineOfHandle(handleId) : undefined;
  if (machine === undefined) return attributes;
  return { [ATTRIBUTE.namespace]: machine.namespace, [ATTRIBUTE.vmiName]: machine.machine };
}
