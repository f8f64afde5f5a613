// Collects the inputs of an assignment: configuration, reservations, the pools it may use, the blocks that its host owns.
import { NotFound } from "../../datastore/index.ts";
import { addressBits, cidrContains, type IpVersion } from "../../lib/ip/ip.ts";
import type { IpamConfig, IpPool } from "../../model/index.ts";
import { releaseBlockAffinity, blockOwnerOf } from "../blocks/affinities.ts";
import type { AutoAssignRequest } from "./auto-assign.ts";
import type { AssignmentReads } from "./assignment-reads.ts";
import type { HostReserved, BlockOwner } from "../blocks/block.ts";
import { DEFAULT_MAX_BLOCKS_PER_HOST } from "../config.ts";
import { type Context, isConflict } from "../context.ts";
import { BlockClaimed, BlockNotEmpty } from "../errors.ts";
import type { BlockSearch } from "./find-free-block.ts";
import { choosePools, type PoolUse, poolContaining, selectsNode } from "./pools.ts";
import type { StoredAffinity } from "../records.ts";
import type { Reservations } from "./reservations.ts";

export interface AssignmentInputs {
  readonly config: IpamConfig;
  readonly reservations: Reservations;
  readonly usablePools: readonly IpPool[];
  readonly owner: BlockOwner;
  /** The owner's blocks inside the usable pools. */
  readonly ownAffinities: readonly StoredAffinity[];
  readonly maxBlocks: number;
}

export const LOAD_BALANCER_OWNER: BlockOwner = { type: "virtual", name: "load-balancer" };

export const blockOwnerFor = (host: string, use: PoolUse): BlockOwner =>
  use === "LoadBalancer" ? LOAD_BALANCER_OWNER : { type: "host", name: host };

export type InputsRequest = Pick<
  AutoAssignRequest,
  "version" | "host" | "use" | "pools" | "namespaceLabels" | "maxBlocks" | "hostReserved"
>;

/** Reads the inputs from the datastore. Releases empty blocks whose pool no longer selects the host. */
export async function readInputs(context: Context, request: InputsRequest): Promise<AssignmentInputs> {
  const { inputs, deselected } = await collectInputs(context.reads, request);
  for (const affinity of deselected) await releaseDeselectedBlock(context, affinity);
  return inputs;
}

/** Inputs from the cache; undefined if there is no cache, or the decision needs reads from the datastore. */
export async function cachedInputs(context: Context, request: InputsRequest): Promise<AssignmentInputs | undefined> {
  const { cache } = context.options;
  if (cache?.isUsableFor(blockOwnerFor(request.host, request.use)) !== true) return undefined;
  try {
    const { inputs, deselected } = await collectInputs(cache, request);
    return deselected.length === 0 ? inputs : undefined;
  } catch {
    return undefined; // no node or no pool: the datastore may have one by now, and its error is the one to report
  }
}

async function collectInputs(
  reads: AssignmentReads,
  request: InputsRequest,
): Promise<{ readonly inputs: AssignmentInputs; readonly deselected: readonly StoredAffinity[] }> {
  const owner = blockOwnerFor(request.host, request.use);
  const [config, reservations, pools, nodeLabels, affinities] = await Promise.all([
    reads.config(),
    reads.reservations(),
    reads.pools(request.version),
    owner.type === "virtual" ? {} : reads.nodeLabels(owner.name),
    reads.affinitiesOf(owner, request.version),
  ]);
  if (nodeLabels === undefined) throw new NotFound(`Node(${owner.name})`);
  const usablePools = choosePools(pools, {
    host: request.host,
    version: request.version,
    use: request.use,
    pools: request.pools ?? [],
    nodeLabels,
    namespaceLabels: request.namespaceLabels ?? {},
    longestBlock: longestBlock(request.version, request.hostReserved),
  });
  const enabled = pools.filter((pool) => pool.mayAssign);
  const isDeselected = ({ key }: StoredAffinity): boolean => {
    const pool = poolContaining(enabled, key.cidr);
    return pool !== undefined && !selectsNode(pool, nodeLabels);
  };
  const inputs = {
    config,
    reservations,
    usablePools,
    owner,
    ownAffinities: affinities.filter(({ key }) => usablePools.some((pool) => cidrContains(pool.cidr, key.cidr))),
    maxBlocks: blockLimit(request.maxBlocks, config.maxBlocksPerHost),
  };
  return { inputs, deselected: affinities.filter(isDeselected) };
}

/** Returns the parameters of a search for a new block. */
export function searchIn(inputs: AssignmentInputs, request: InputsRequest): Omit<BlockSearch, "exhausted"> {
  return {
    pools: inputs.usablePools,
    owner: inputs.owner,
    version: request.version,
    reservations: inputs.reservations,
    cooldownSeconds: inputs.config.ipCooldownSeconds ?? 0,
    hostReserved: request.hostReserved,
  };
}

/** Returns the longest prefix length whose blocks contain more addresses than the host reserves in each block. */
function longestBlock(version: IpVersion, reserved: HostReserved | undefined): number {
  const bits = addressBits(version);
  if (reserved === undefined) return bits;
  return bits - (reserved.startOfBlock + reserved.endOfBlock).toString(2).length;
}

/** The smaller of the request's and the cluster's limit; without either, `DEFAULT_MAX_BLOCKS_PER_HOST`. */
export function blockLimit(requested: number | undefined, global: number): number {
  if (requested !== undefined && requested > 0) return global > 0 ? Math.min(requested, global) : requested;
  return global > 0 ? global : DEFAULT_MAX_BLOCKS_PER_HOST;
}

/** Releases a block whose pool no longer selects this node, if the block is empty. */
async function releaseDeselectedBlock(context: Context, affinity: StoredAffinity): Promise<void> {
  try {
    await releaseBlockAffinity(context, blockOwnerOf(affinity), affinity.key.cidr, { mustBeEmpty: true });
  } catch (error) {
    if (!(error instanceof BlockNotEmpty || error instanceof BlockClaimed || isConflict(error))) throw error;
  }
}
