// Indexes all allocated addresses by block, node and handle, with the state that the collector keeps for each. The cache reports
// changed blocks. An address that was released and assigned again starts with a new state.
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { type AllocationRecord, allocationsIn, ATTRIBUTE, isTunnelType, machineOfHandle } from "../../ipam/index.ts";
import type { Block, Labels } from "../../model/index.ts";

export interface TrackedAllocation {
  readonly id: string;
  readonly address: IpAddress;
  readonly handleId: string;
  readonly block: Cidr;
  /** The node that the address was assigned on; empty if the allocation does not contain it. */
  readonly node: string;
  readonly attributes: Labels;
  readonly sequenceNumber?: bigint;
  readonly borrowed: boolean;
  /** When a scan first found the address unused. */
  suspectedAtMs: number | undefined;
  /** To be released, unless the last check finds it in use. */
  isLeak: boolean;
  /** A leak that is released although other addresses of its handle are in use. */
  isSurplus: boolean;
}

export const isTunnel = ({ attributes }: TrackedAllocation): boolean => isTunnelType(attributes[ATTRIBUTE.type]);
export const isPod = ({ attributes }: TrackedAllocation): boolean =>
  (attributes[ATTRIBUTE.namespace] ?? "") !== "" && (attributes[ATTRIBUTE.pod] ?? "") !== "";
export const isVirtualMachine = ({ attributes }: Pick<TrackedAllocation, "attributes">): boolean =>
  attributes[ATTRIBUTE.vmiName] !== undefined;
const isService = ({ attributes, affinity }: AllocationRecord): boolean =>
  attributes[ATTRIBUTE.service] !== undefined || affinity?.startsWith("virtual:") === true;

interface BlockEntry {
  readonly block: Block;
  readonly host: string | undefined;
  readonly allocations: ReadonlyMap<string, TrackedAllocation>;
  /** When the block was first found without allocations. */
  emptySinceMs: number | undefined;
}

export class AllocationIndex {
  readonly #blocks = new Map<string, BlockEntry>();
  readonly #byNode = new Map<string, Set<TrackedAllocation>>();
  readonly #byHandle = new Map<string, Set<TrackedAllocation>>();
  readonly #blocksByHost = new Map<string, Set<string>>();

  /** @returns the nodes whose allocations or blocks changed */
  setBlock(cidr: string, block: Block | undefined): ReadonlySet<string> {
    const before = this.#blocks.get(cidr);
    const affected = new Set<string>();
    const host = /^host:(.+)$/.exec(block?.affinity ?? "")?.[1];
    const allocations = new Map<string, TrackedAllocation>();
    for (const record of block === undefined ? [] : allocationsIn(block)) {
      const tracked = this.#track(record, host, before?.allocations);
      if (tracked !== undefined) allocations.set(tracked.id, tracked);
    }
    for (const [id, old] of before?.allocations ?? [])
      if (allocations.get(id) !== old) {
        remove(this.#byNode, old.node, old);
        remove(this.#byHandle, old.handleId, old);
        affected.add(old.node);
      }
    for (const [id, tracked] of allocations)
      if (before?.allocations.get(id) !== tracked) {
        add(this.#byNode, tracked.node, tracked);
        add(this.#byHandle, tracked.handleId, tracked);
        affected.add(tracked.node);
      }
    this.#setHost(cidr, before?.host, host, affected);
    if (block === undefined) this.#blocks.delete(cidr);
    else {
      const isEmpty = block.allocations.every((index) => index === null);
      this.#blocks.set(cidr, { block, host, allocations, emptySinceMs: isEmpty ? before?.emptySinceMs : undefined });
    }
    return affected;
  }

  #setHost(cidr: string, before: string | undefined, after: string | undefined, affected: Set<string>): void {
    if (before === after) return;
    if (before !== undefined) {
      remove(this.#blocksByHost, before, cidr);
      affected.add(before);
    }
    if (after !== undefined) {
      add(this.#blocksByHost, after, cidr);
      affected.add(after);
    }
  }

  /** @returns the same object for the same allocation, and a new one if the address was assigned again or changed its owner */
  #track(
    record: AllocationRecord,
    host: string | undefined,
    before: ReadonlyMap<string, TrackedAllocation> | undefined,
  ): TrackedAllocation | undefined {
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
      sequenceNumber,
      suspectedAtMs: undefined,
      isLeak: false,
      isSurplus: false,
    };
  }

  /** Nodes that have addresses or blocks. */
  nodes(): ReadonlySet<string> {
    return new Set([...this.#byNode.keys(), ...this.#blocksByHost.keys()]);
  }
  hasNode(node: string): boolean {
    return this.#byNode.has(node) || this.#blocksByHost.has(node);
  }
  allocationsOf(node: string): Iterable<TrackedAllocation> {
    return this.#byNode.get(node) ?? [];
  }
  blocksOf(node: string): ReadonlySet<string> {
    return this.#blocksByHost.get(node) ?? new Set();
  }
  withHandle(handleId: string): Iterable<TrackedAllocation> {
    return this.#byHandle.get(handleId) ?? [];
  }
  *blocks(): Iterable<{
    readonly cidr: Cidr;
    readonly block: Block;
    readonly host: string | undefined;
    readonly allocations: Iterable<TrackedAllocation>;
  }> {
    for (const { block, host, allocations } of this.#blocks.values())
      yield { cidr: block.cidr, block, host, allocations: allocations.values() };
  }

  /** Blocks of a node that have been empty for longer than `graceMs`. The first call for an empty block only stores the time. */
  emptyBlocks(node: string, nowMs: number, graceMs: number): readonly Cidr[] {
    const expired: Cidr[] = [];
    for (const cidr of [...this.blocksOf(node)].sort()) {
      const entry = this.#blocks.get(cidr);
      if (entry === undefined || entry.block.allocations.some((index) => index !== null)) continue;
      entry.emptySinceMs ??= nowMs;
      if (nowMs - entry.emptySinceMs > graceMs) expired.push(entry.block.cidr);
    }
    return expired;
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

/** The addresses of a stopped virtual machine have no attributes of a pod; the handle contains the name of the virtual machine. */
function attributesOf({ attributes }: AllocationRecord, handleId: string): Labels {
  const machine = Object.keys(attributes).length === 0 ? machineOfHandle(handleId) : undefined;
  if (machine === undefined) return attributes;
  return { [ATTRIBUTE.namespace]: machine.namespace, [ATTRIBUTE.vmiName]: machine.machine };
}
