// Which pools there are, and which of them a request may draw from.
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

/** All pools by name; one that cannot be parsed is left out. */
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
  /** Exactly these, in this order; selectors and assignment mode then do not matter. */
  readonly pools: readonly Cidr[];
  readonly nodeLabels: Labels;
  readonly namespaceLabels: Labels;
  /** Pools with smaller blocks cannot serve this host. */
  readonly longestBlock: number;
}

const MOST_NAMED = 4;

/** `: pool a is disabled, pool b …`: what keeps each from serving the request, for who has to put it right. */
function excluded(pools: readonly IpPool[], request: PoolRequest): string {
  if (pools.length === 0) return `: there is no IPv${request.version} pool`;
  const reasons = pools.slice(0, MOST_NAMED).map((pool) => `pool ${pool.name} ${exclusion(pool, request)}`);
  if (pools.length > MOST_NAMED) reasons.push(`and ${pools.length - MOST_NAMED} more`);
  return `: ${reasons.join(", ")}`;
}

function exclusion(pool: IpPool, request: PoolRequest): string {
  if (!pool.mayAssign) return "is disabled or being deleted";
  if (pool.blockSize > request.longestBlock) return `has blocks of /${pool.blockSize}, too small for this host`;
  if (!pool.isAutomatic) return "serves only who names it (assignmentMode Manual)";
  if (!selectsNode(pool, request.nodeLabels)) return `is for nodes with ${pool.nodeSelector}`;
  return `is for namespaces with ${pool.namespaceSelector}`;
}

/** The pools to draw from, in order; throws when there are none, saying what excluded them. */
export function choosePools(pools: readonly IpPool[], request: PoolRequest): IpPool[] {
  const wrong = request.pools.find((cidr) => ipVersion(cidr) !== request.version);
  if (wrong !== undefined) throw new WrongPoolFamily(wrong, request.version);
  const enabled = pools.filter((pool) => pool.mayAssign && pool.blockSize <= request.longestBlock);
  if (enabled.length === 0) throw new NoQualifiedPool(excluded(pools, request));
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
  if (chosen.length === 0) throw new NoPoolForNode(request.host, excluded(pools, request));
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

/** The pool that holds an address or block. */
export function poolAround(pools: readonly IpPool[], inner: IpAddress | Cidr): IpPool | undefined {
  return pools.find((pool) => cidrContains(pool.cidr, inner));
}
