// What a request for addresses meets: settings, reservations, the pools it may use, the blocks its host has.
import { NotFound } from "../datastore/index.ts";
import { addressBits, cidrContains, type IpVersion } from "../lib/ip.ts";
import type { IpamConfig, Labels } from "../model/index.ts";
import { giveUpBlock, ownerOf } from "./affinities.ts";
import type { AutoAssignRequest } from "./auto-assign.ts";
import type { HostReserved, Owner } from "./block.ts";
import { DEFAULT_MAX_BLOCKS_PER_HOST, readConfig } from "./config.ts";
import { type Context, isLost } from "./context.ts";
import { BlockClaimed, BlockNotEmpty } from "./errors.ts";
import type { BlockSearch } from "./free-block.ts";
import { choosePools, type IpamPool, type PoolUse, poolAround, readPools, selectsNode } from "./pools.ts";
import type { StoredAffinity } from "./records.ts";
import { Reservations } from "./reservations.ts";

export interface Surroundings {
  readonly config: IpamConfig;
  readonly reservations: Reservations;
  readonly usable: readonly IpamPool[];
  readonly owner: Owner;
  /** The owner's blocks inside the usable pools. */
  readonly owned: readonly StoredAffinity[];
  /** How many there may be. */
  readonly limit: number;
}

export const LOAD_BALANCER: Owner = { type: "virtual", name: "load-balancer" };

export const ownerFor = (host: string, use: PoolUse): Owner =>
  use === "LoadBalancer" ? LOAD_BALANCER : { type: "host", name: host };

export type SurroundingsRequest = Pick<
  AutoAssignRequest,
  "version" | "host" | "use" | "pools" | "namespaceLabels" | "maxBlocks" | "hostReserved"
>;

/** Reads all at once; on the way, empty blocks the host may no longer use are given back. */
export async function readSurroundings(context: Context, request: SurroundingsRequest): Promise<Surroundings> {
  const owner = ownerFor(request.host, request.use);
  const { records } = context;
  const [config, reserved, pools, nodeLabels, affinities] = await Promise.all([
    readConfig(context),
    records.resources("IPReservation"),
    readPools(records, request.version),
    labelsOf(context, owner),
    records.affinitiesOf(owner, request.version),
  ]);
  const usable = choosePools(pools, {
    host: request.host,
    version: request.version,
    use: request.use,
    pools: request.pools ?? [],
    nodeLabels,
    namespaceLabels: request.namespaceLabels ?? {},
    longestBlock: longestBlock(request.version, request.hostReserved),
  });
  await giveUpDeselected(context, affinities, pools, nodeLabels);
  return {
    config,
    reservations: Reservations.of(reserved),
    usable,
    owner,
    owned: affinities.filter(({ key }) => usable.some((pool) => cidrContains(pool.cidr, key.cidr))),
    limit: blockLimit(request.maxBlocks, config.maxBlocksPerHost),
  };
}

/** Where to look for a new block. */
export function searchIn(around: Surroundings, request: SurroundingsRequest): Omit<BlockSearch, "exhausted"> {
  return {
    pools: around.usable,
    owner: around.owner,
    version: request.version,
    reservations: around.reservations,
    cooldownSeconds: around.config.ipCooldownSeconds ?? 0,
    ...(request.hostReserved === undefined ? {} : { hostReserved: request.hostReserved }),
  };
}

async function labelsOf(context: Context, owner: Owner): Promise<Labels> {
  if (owner.type === "virtual") return {};
  const node = await context.records.resource("Node", owner.name);
  if (node === undefined) throw new NotFound(`Node(${owner.name})`);
  return node.metadata.labels ?? {};
}

/** A block must have room for what the host keeps of each: 32 bits less those that count it. */
function longestBlock(version: IpVersion, reserved: HostReserved | undefined): number {
  const bits = addressBits(version);
  if (reserved === undefined) return bits;
  return bits - (reserved.startOfBlock + reserved.endOfBlock).toString(2).length;
}

/** The smaller of the request's and the cluster's limit; twenty when nobody says. */
function blockLimit(requested: number | undefined, global: number): number {
  if (requested !== undefined && requested > 0) return global > 0 ? Math.min(requested, global) : requested;
  return global > 0 ? global : DEFAULT_MAX_BLOCKS_PER_HOST;
}

/** Empty blocks in pools that no longer select this node go back. */
async function giveUpDeselected(
  context: Context,
  affinities: readonly StoredAffinity[],
  pools: readonly IpamPool[],
  nodeLabels: Labels,
): Promise<void> {
  const enabled = pools.filter((pool) => pool.enabled);
  for (const affinity of affinities) {
    const pool = poolAround(enabled, affinity.key.cidr);
    if (pool === undefined || selectsNode(pool, nodeLabels)) continue;
    try {
      await giveUpBlock(context, ownerOf(affinity), affinity.key.cidr, { mustBeEmpty: true });
    } catch (error) {
      if (!(error instanceof BlockNotEmpty || error instanceof BlockClaimed || isLost(error))) throw error;
    }
  }
}
