// Finds and repairs inconsistencies between blocks, affinities and handles. A crash can cause some of them; none of those
// leads to an address that is assigned twice.
import { type Cidr, cidrsOverlap } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";
import {
  releaseBlockAffinity,
  isConfirmed,
  blockOwnerOf,
  parseBlockOwner,
  resolveAffinity,
} from "../blocks/affinities.ts";
import { type BlockOwner, formatBlockOwner } from "../blocks/block.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import { recountHandle, setHandleCounts } from "../blocks/handles.ts";
import type { StoredAffinity, StoredBlock, StoredHandle } from "../records.ts";

export type Finding =
  /** An affinity whose block is missing or has another owner. */
  | { readonly kind: "stale-affinity"; readonly owner: BlockOwner; readonly block: Cidr; readonly actual?: string }
  /** The claim or release of a block was not completed. */
  | { readonly kind: "unfinished-affinity"; readonly owner: BlockOwner; readonly block: Cidr; readonly state: string }
  | { readonly kind: "unknown-node"; readonly owner: BlockOwner; readonly block: Cidr }
  /** The block names an owner that has no affinity for it, so no routes are programmed for the block. */
  | { readonly kind: "missing-affinity"; readonly owner: BlockOwner; readonly block: Cidr }
  /** Addresses name a handle that does not exist, or whose count is too low. */
  | { readonly kind: "missing-handle"; readonly handleId: string; readonly block: Cidr; readonly count: number }
  /** A handle counts more addresses than the blocks contain. */
  | { readonly kind: "leaked-handle"; readonly handleId: string; readonly blocks: readonly Cidr[] }
  | { readonly kind: "overlapping-blocks"; readonly block: Cidr; readonly other: Cidr }
  | { readonly kind: "malformed-block"; readonly block: Cidr; readonly fault: string };

export interface IpamState {
  readonly blocks: readonly StoredBlock[];
  readonly affinities: readonly StoredAffinity[];
  readonly handles: readonly StoredHandle[];
  /** Names of all nodes; undefined if they were not read. */
  readonly nodes?: ReadonlySet<string>;
}

export async function readState(context: Context): Promise<IpamState> {
  const { records } = context;
  const [blocks, affinities, handles, nodes] = await Promise.all([
    records.blocks(),
    records.affinities(),
    records.handles(),
    records.resources("Node"),
  ]);
  return { blocks, affinities, handles, nodes: new Set(nodes.map((node) => node.metadata.name)) };
}

export function findInconsistencies(state: IpamState): readonly Finding[] {
  return [...findAffinityFaults(state), ...findBlockFaults(state), ...findHandleFaults(state)];
}

function* findAffinityFaults({ blocks, affinities, nodes }: IpamState): Generator<Finding> {
  const byCidr = new Map(blocks.map((block) => [block.key.cidr, block.value]));
  for (const affinity of affinities) {
    const owner = blockOwnerOf(affinity);
    const { cidr } = affinity.key;
    const actual = byCidr.get(cidr)?.affinity;
    if (actual !== formatBlockOwner(owner)) yield { kind: "stale-affinity", owner, block: cidr, actual };
    else if (!isConfirmed(affinity))
      yield { kind: "unfinished-affinity", owner, block: cidr, state: affinity.value.state };
    else if (owner.type === "host" && nodes !== undefined && !nodes.has(owner.name))
      yield { kind: "unknown-node", owner, block: cidr };
  }
}

function* findBlockFaults({ blocks, affinities }: IpamState): Generator<Finding> {
  const known = new Set(
    affinities.map((affinity) => `${formatBlockOwner(blockOwnerOf(affinity))} ${affinity.key.cidr}`),
  );
  for (const { key, value } of blocks) {
    for (const fault of blockFaults(value)) yield { kind: "malformed-block", block: key.cidr, fault };
    const owner = parseBlockOwner(value.affinity);
    if (owner !== undefined && !known.has(`${formatBlockOwner(owner)} ${key.cidr}`))
      yield { kind: "missing-affinity", owner, block: key.cidr };
  }
  const sorted = blocks.map(({ key }) => key.cidr).sort();
  for (const [i, block] of sorted.entries()) {
    const other = sorted.find((candidate, j) => j > i && cidrsOverlap(block, candidate));
    if (other !== undefined) yield { kind: "overlapping-blocks", block, other };
  }
}

/** Yields the differences between handles and blocks. */
export function* findHandleFaults(state: {
  readonly blocks: Iterable<{ readonly value: Block }>;
  readonly handles: readonly StoredHandle[];
}): Generator<Finding> {
  const { blocks, handles } = state;
  const held = new Map<string, Map<Cidr, number>>();
  for (const { value } of blocks)
    for (const index of value.allocations) {
      const handleId = index === null ? undefined : value.attributes[index]?.handleId?.split("\r", 1)[0];
      if (handleId === undefined) continue;
      const counts = held.get(handleId) ?? new Map<Cidr, number>();
      held.set(handleId, counts.set(value.cidr, (counts.get(value.cidr) ?? 0) + 1));
    }
  const byId = new Map(handles.map((handle) => [handle.value.handleId, handle.value]));
  for (const [handleId, counts] of held)
    for (const [block, count] of counts)
      if ((byId.get(handleId)?.block[block] ?? 0) < count) yield { kind: "missing-handle", handleId, block, count };
  for (const [handleId, handle] of byId) {
    const entries = Object.entries(handle.block) as [Cidr, number][];
    const surplus = entries.filter(([block, count]) => count > (held.get(handleId)?.get(block) ?? 0));
    if (surplus.length > 0 || entries.length === 0)
      yield { kind: "leaked-handle", handleId, blocks: surplus.map(([block]) => block) };
  }
}

/** Yields violations of the invariant of a block: every ordinal is either free and queued once, or allocated to an entry. */
function* blockFaults(block: Block): Generator<string> {
  const free = new Set(block.unallocated);
  if (free.size !== block.unallocated.length) yield "an address is queued twice";
  for (const [ordinal, index] of block.allocations.entries()) {
    if (index === null && !free.has(ordinal)) yield `address ${ordinal} is neither free nor allocated`;
    if (index !== null && free.has(ordinal)) yield `address ${ordinal} is both free and allocated`;
    if (index !== null && block.attributes[index] === undefined) yield `address ${ordinal} has no attributes`;
  }
}

export const describeFinding = (finding: Finding): string => {
  switch (finding.kind) {
    case "stale-affinity":
      return `affinity of ${formatBlockOwner(finding.owner)} for block ${finding.block}: ${finding.actual === undefined ? "the block does not exist or has no owner" : `the block belongs to ${finding.actual}`}`;
    case "unfinished-affinity":
      return `affinity of ${formatBlockOwner(finding.owner)} for block ${finding.block} was left in state "${finding.state}"`;
    case "unknown-node":
      return `block ${finding.block} belongs to node ${finding.owner.name}, which does not exist`;
    case "missing-affinity":
      return `block ${finding.block} belongs to ${formatBlockOwner(finding.owner)}, which has no affinity for it`;
    case "missing-handle":
      return `block ${finding.block} holds ${finding.count} addresses of handle ${finding.handleId}, which does not count them`;
    case "leaked-handle":
      return `handle ${finding.handleId} counts addresses that it does not hold${finding.blocks.length === 0 ? "" : ` in ${finding.blocks.join(", ")}`}`;
    case "overlapping-blocks":
      return `blocks ${finding.block} and ${finding.other} overlap: addresses may have two owners`;
    case "malformed-block":
      return `block ${finding.block}: ${finding.fault}`;
  }
};

/**
 * Repairs one finding. An object that another process has changed meanwhile is left unchanged, which counts as repaired.
 * @returns false if the finding cannot be repaired automatically
 */
export async function repair(context: Context, finding: Finding, nodes: ReadonlySet<string>): Promise<boolean> {
  try {
    return await tryRepair(context, finding, nodes);
  } catch (error) {
    if (error instanceof BlockClaimed || error instanceof BlockNotEmpty || isConflict(error)) return true;
    throw error;
  }
}

async function tryRepair(context: Context, finding: Finding, nodes: ReadonlySet<string>): Promise<boolean> {
  const { records } = context;
  switch (finding.kind) {
    case "unfinished-affinity":
    case "missing-affinity": {
      const { owner, block } = finding;
      const affinity =
        (await records.createAffinity(owner, block, "pending")) ?? (await records.affinity(owner, block));
      const isOwnerPresent = owner.type === "virtual" || nodes.has(owner.name);
      if (affinity !== undefined && isOwnerPresent) await resolveAffinity(context, affinity);
      else await releaseBlockAffinity(context, owner, block, { mustBeEmpty: false });
      return true;
    }
    case "stale-affinity":
    case "unknown-node":
      await releaseBlockAffinity(context, finding.owner, finding.block, { mustBeEmpty: false });
      return true;
    case "missing-handle": {
      const { handleId, block, count } = finding;
      const known = await records.handle(handleId);
      if (known === undefined) await records.createHandle({ handleId, block: { [block]: count }, deleted: false });
      else await records.updateHandle(known, { ...known.value, block: { ...known.value.block, [block]: count } });
      return true;
    }
    case "leaked-handle": {
      const handle = await records.handle(finding.handleId);
      if (handle === undefined) return true;
      await setHandleCounts(context, handle, await recountHandle(context, finding.handleId, finding.blocks));
      return true;
    }
    case "overlapping-blocks":
    case "malformed-block":
      return false;
  }
}
