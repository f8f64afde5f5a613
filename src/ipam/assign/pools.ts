// Reads the IP pools, and chooses those that an assignment may use.
import { type Cidr, cidrContains, type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import {
  ignoreUnreadable,
  type IpPool,
  type Labels,
  matchesSelector,
  parseSelector,
  readPool,
  type Resource,
} from "../../model/index.ts";
import { BadPool, NoPoolForNode, NoQualifiedPool, PoolNotUsable, WrongPoolFamily } from "../errors.ts";
import type { Records } from "../records.ts";

export type PoolUse = "Workload" | "Tunnel" | "LoadBalancer" | "HostSecondaryInterface";

/** Returns the pools sorted by name. Pools that cannot be parsed are left out. */
export function poolsOf(resources: readonly Resource[], version?: IpVersion): IpPool[] {
  const pools = resources.flatMap((resource) => readPool(resource, ignoreUnreadable) ?? []);
  return pools
    .filter((pool) => version === undefined || ipVersion(pool.cidr) === version)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

export async function readPools(records: Records, version?: IpVersion): Promise<IpPool[]> {
  return poolsOf(await records.resources("IPPool"), version);
}

export interface PoolRequest {
  readonly host: string;
  readonly version: IpVersion;
  readonly use: PoolUse;
  /** If not empty: exactly these, in this order, regardless of selectors and assignment mode. */
  readonly pools: readonly Cidr[];
  readonly nodeLabels: Labels;
  readonly namespaceLabels: Labels;
  /** The longest block prefix length; pools with smaller blocks cannot be used by this host. */
  readonly longestBlock: number;
}

const MAX_LISTED_POOLS = 4;

/** Returns, for the error message, why each pool cannot be used: `: pool a is disabled or being deleted, pool b …`. */
function describeExclusions(pools: readonly IpPool[], request: PoolRequest): string {
  if (pools.length === 0) return `: there is no IPv${request.version} pool`;
  const reasons = pools.slice(0, MAX_LISTED_POOLS).map((pool) => `pool ${pool.name} ${exclusionReason(pool, request)}`);
  if (pools.length > MAX_LISTED_POOLS) reasons.push(`and ${pools.length - MAX_LISTED_POOLS} more`);
  return `: ${reasons.join(", ")}`;
}

function exclusionReason(pool: IpPool, request: PoolRequest): string {
  if (!pool.mayAssign) return "is disabled or being deleted";
  if (pool.blockSize > request.longestBlock) return `has blocks of /${pool.blockSize}, too small for this host`;
  if (!pool.isAutomatic) return "is used only by requests that name it (assignmentMode Manual)";
  if (!selectsNode(pool, request.nodeLabels)) return `is for nodes with ${pool.nodeSelector}`;
  return `is for namespaces with ${pool.namespaceSelector}`;
}

/**
 * Returns the pools that the request may use, in order.
 * @throws IpamError that gives the reason if there is no such pool
 */
export function choosePools(pools: readonly IpPool[], request: PoolRequest): IpPool[] {
  const wrong = request.pools.find((cidr) => ipVersion(cidr) !== request.version);
  if (wrong !== undefined) throw new WrongPoolFamily(wrong, request.version);
  const enabled = pools.filter((pool) => pool.mayAssign && pool.blockSize <= request.longestBlock);
  if (enabled.length === 0) throw new NoQualifiedPool(describeExclusions(pools, request));
  // A pod's annotation may name a pool thousands of times, and a full pool is searched once for each entry.
  const named = [...new Set(request.pools)];
  const chosen =
    named.length > 0
      ? named.map((cidr) => {
          const pool = enabled.find((candidate) => candidate.cidr === cidr);
          if (pool === undefined) throw new PoolNotUsable(cidr);
          return pool;
        })
      : enabled.filter(
          (pool) => pool.isAutomatic && selectsNode(pool, request.nodeLabels) && selectsNamespace(pool, request),
        );
  if (chosen.length === 0) throw new NoPoolForNode(request.host, describeExclusions(pools, request));
  const usable = chosen.filter((pool) => pool.allowedUses.includes(request.use));
  if (usable.length === 0) throw new NoQualifiedPool(`, no pools match the required use (${request.use})`);
  return usable;
}

export const selectsNode = (pool: IpPool, labels: Labels): boolean =>
  selects(pool, "nodeSelector", pool.nodeSelector, labels);

const selectsNamespace = (pool: IpPool, request: PoolRequest): boolean =>
  selects(pool, "namespaceSelector", pool.namespaceSelector, request.namespaceLabels);

function selects(pool: IpPool, field: string, selector: string, labels: Labels): boolean {
  if (selector === "" || selector === "all()") return true;
  try {
    return matchesSelector(parseSelector(selector), labels);
  } catch (error) {
    throw new BadPool(pool.name, `${field} ${JSON.stringify(selector)} does not parse`, { cause: error });
  }
}

/** Returns the pool that contains an address or block. */
export function poolContaining(pools: readonly IpPool[], inner: IpAddress | Cidr): IpPool | undefined {
  return pools.find((pool) => cidrContains(pool.cidr, inner));
}
