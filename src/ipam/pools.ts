// Which pools there are, and which of them a request may draw from.
import { type Cidr, cidrContains, type IpAddress, type IpVersion, ipVersion, tryParseCidr } from "../lib/ip.ts";
import { type Labels, matchesSelector, parseSelector, type Resource } from "../model/index.ts";
import { BadPool, NoPoolForNode, NoQualifiedPool, PoolNotUsable, WrongPoolFamily } from "./errors.ts";
import type { Records } from "./records.ts";

export type PoolUse = "Workload" | "Tunnel" | "LoadBalancer" | "HostSecondaryInterface";

/** An IPPool as IPAM sees it, defaults filled in. */
export interface IpamPool {
  readonly name: string;
  readonly cidr: Cidr;
  readonly blockSize: number;
  /** May give addresses: not disabled, not being deleted, not marked as unusable. */
  readonly enabled: boolean;
  readonly nodeSelector: string;
  readonly namespaceSelector: string;
  readonly allowedUses: readonly string[];
  readonly automatic: boolean;
}

const DEFAULT_BLOCK_SIZE: Readonly<Record<IpVersion, number>> = { 4: 26, 6: 122 };

/** All pools by name; one that cannot be parsed is left out. */
export function poolsOf(resources: readonly Resource[], version?: IpVersion): IpamPool[] {
  const pools = resources.flatMap((resource) => poolOf(resource) ?? []);
  return pools
    .filter((pool) => version === undefined || ipVersion(pool.cidr) === version)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

export async function readPools(records: Records, version?: IpVersion): Promise<IpamPool[]> {
  return poolsOf(await records.resources("IPPool"), version);
}

export function poolOf(resource: Resource): IpamPool | undefined {
  const spec = (resource.spec ?? {}) as Readonly<Record<string, unknown>>;
  const cidr = tryParseCidr(String(spec.cidr));
  if (cidr === undefined) return undefined;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const uses = Array.isArray(spec.allowedUses) ? spec.allowedUses.map(String) : [];
  const blockSize = typeof spec.blockSize === "number" && spec.blockSize > 0 ? spec.blockSize : undefined;
  return {
    name: resource.metadata.name,
    cidr,
    blockSize: blockSize ?? DEFAULT_BLOCK_SIZE[ipVersion(cidr)],
    enabled: spec.disabled !== true && resource.metadata.deletionTimestamp === undefined && isAllocatable(resource),
    nodeSelector: text(spec.nodeSelector),
    namespaceSelector: text(spec.namespaceSelector),
    allowedUses: uses.length > 0 ? uses : ["Workload", "Tunnel"],
    automatic: spec.assignmentMode !== "Manual",
  };
}

function isAllocatable(resource: Resource): boolean {
  const conditions = (resource.status as { conditions?: unknown } | undefined)?.conditions;
  if (!Array.isArray(conditions)) return true;
  return !conditions.some(
    (c: { type?: unknown; status?: unknown }) => c?.type === "Allocatable" && c.status === "False",
  );
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
function excluded(pools: readonly IpamPool[], request: PoolRequest): string {
  if (pools.length === 0) return `: there is no IPv${request.version} pool`;
  const reasons = pools.slice(0, MOST_NAMED).map((pool) => `pool ${pool.name} ${exclusion(pool, request)}`);
  if (pools.length > MOST_NAMED) reasons.push(`and ${pools.length - MOST_NAMED} more`);
  return `: ${reasons.join(", ")}`;
}

function exclusion(pool: IpamPool, request: PoolRequest): string {
  if (!pool.enabled) return "is disabled or being deleted";
  if (pool.blockSize > request.longestBlock) return `has blocks of /${pool.blockSize}, too small for this host`;
  if (!pool.automatic) return "serves only who names it (assignmentMode Manual)";
  if (!selectsNode(pool, request.nodeLabels)) return `is for nodes with ${pool.nodeSelector}`;
  return `is for namespaces with ${pool.namespaceSelector}`;
}

/** The pools to draw from, in order; throws when there are none, saying what excluded them. */
export function choosePools(pools: readonly IpamPool[], request: PoolRequest): IpamPool[] {
  const wrong = request.pools.find((cidr) => ipVersion(cidr) !== request.version);
  if (wrong !== undefined) throw new WrongPoolFamily(wrong, request.version);
  const enabled = pools.filter((pool) => pool.enabled && pool.blockSize <= request.longestBlock);
  if (enabled.length === 0) throw new NoQualifiedPool(excluded(pools, request));
  const chosen =
    request.pools.length > 0
      ? request.pools.map((cidr) => {
          const pool = enabled.find((candidate) => candidate.cidr === cidr);
          if (pool === undefined) throw new PoolNotUsable(cidr);
          return pool;
        })
      : enabled.filter(
          (pool) => pool.automatic && selectsNode(pool, request.nodeLabels) && selectsNamespace(pool, request),
        );
  if (chosen.length === 0) throw new NoPoolForNode(request.host, excluded(pools, request));
  const usable = chosen.filter((pool) => pool.allowedUses.includes(request.use));
  if (usable.length === 0) throw new NoQualifiedPool(`, no pools match the required use (${request.use})`);
  return usable;
}

export const selectsNode = (pool: IpamPool, labels: Labels): boolean =>
  selects(pool, "nodeSelector", pool.nodeSelector, labels);

const selectsNamespace = (pool: IpamPool, request: PoolRequest): boolean =>
  selects(pool, "namespaceSelector", pool.namespaceSelector, request.namespaceLabels);

function selects(pool: IpamPool, field: string, selector: string, labels: Labels): boolean {
  if (selector === "" || selector === "all()") return true;
  try {
    return matchesSelector(parseSelector(selector), labels);
  } catch (error) {
    throw new BadPool(pool.name, `${field} ${JSON.stringify(selector)} does not parse`, { cause: error });
  }
}

/** The pool that holds an address or block. */
export function poolAround(pools: readonly IpamPool[], inner: IpAddress | Cidr): IpamPool | undefined {
  return pools.find((pool) => cidrContains(pool.cidr, inner));
}
