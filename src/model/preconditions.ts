// What a create, update or deletion demands besides a valid resource: names and revisions, and what may not change.
// Pure: whoever writes has read what stands there and the neighbours.
import { type Cidr, cidrContains, cidrLength, cidrsOverlap, tryParseCidr } from "../lib/ip.ts";
import type { FieldFault } from "./faults.ts";
import { kindOf } from "./kinds.ts";
import type { Resource } from "./resource.ts";
import type { ResourceOf } from "./resources.ts";

/** Metadata a create may not have, or must. */
export function checkCreate(resource: Resource): readonly FieldFault[] {
  const { metadata } = resource;
  const faults: FieldFault[] = [];
  if (metadata.name === "" && metadata.generateName !== undefined)
    faults.push({
      field: "metadata.generateName",
      value: metadata.generateName,
      reason: "names are not generated: give metadata.name",
    });
  else if (metadata.name === "")
    faults.push({ field: "metadata.name", reason: "is missing: want the resource's name" });
  if (metadata.resourceVersion !== undefined && metadata.resourceVersion !== "")
    faults.push({
      field: "metadata.resourceVersion",
      value: metadata.resourceVersion,
      reason: "must not be set on a create",
    });
  faults.push(...checkNamespace(resource));
  return faults;
}

/** An update names what it replaces. */
export function checkUpdate(resource: Resource): readonly FieldFault[] {
  const { metadata } = resource;
  const faults: FieldFault[] = [];
  for (const field of ["resourceVersion", "creationTimestamp", "uid"] as const)
    if (metadata[field] === undefined || metadata[field] === "")
      faults.push({ field: `metadata.${field}`, reason: "must be set on an update: read the resource first" });
  faults.push(...checkNamespace(resource));
  return faults;
}

function checkNamespace({ kind, metadata }: Resource): readonly FieldFault[] {
  const { namespaced } = kindOf(kind);
  const given = metadata.namespace !== undefined && metadata.namespace !== "";
  if (namespaced && !given)
    return [{ field: "metadata.namespace", reason: `${kind} is a namespaced kind: want a namespace` }];
  if (!namespaced && given)
    return [{ field: "metadata.namespace", value: metadata.namespace, reason: `${kind} is not a namespaced kind` }];
  return [];
}

type Pool = ResourceOf<"IPPool">;

/** The pools a new one would share addresses with. */
export function checkPoolOverlap(pool: Pool, others: Iterable<Pool>): readonly FieldFault[] {
  const cidr = tryParseCidr(pool.spec.cidr);
  const faults: FieldFault[] = [];
  for (const other of others) {
    const taken = tryParseCidr(other.spec.cidr);
    if (cidr === undefined || taken === undefined || other.metadata.name === pool.metadata.name) continue;
    if (cidrsOverlap(cidr, taken))
      faults.push({
        field: "spec.cidr",
        value: pool.spec.cidr,
        reason: `IPPool(${pool.metadata.name}) overlaps with IPPool(${other.metadata.name}) CIDR ${taken}: shrink or delete one`,
      });
  }
  return faults;
}

/** Blocks already given out inside the pool must have its size. */
export function checkPoolBlocks(pool: Pool, blocks: Iterable<Cidr>): readonly FieldFault[] {
  const cidr = tryParseCidr(pool.spec.cidr);
  if (cidr === undefined) return [];
  for (const block of blocks)
    if (cidrContains(cidr, block) && cidrLength(block) !== pool.spec.blockSize)
      return [
        {
          field: "spec.blockSize",
          value: pool.spec.blockSize,
          reason: `block ${block} inside ${cidr} has another size: release its addresses first, or take blockSize ${cidrLength(block)}`,
        },
      ];
  return [];
}

/** A pool stays the same network, in the same blocks, and load balancers' pools stay theirs. */
export function checkPoolUpdate(stored: Pool, wanted: Pool): readonly FieldFault[] {
  const faults: FieldFault[] = [];
  if (tryParseCidr(stored.spec.cidr) !== tryParseCidr(wanted.spec.cidr))
    faults.push({
      field: "spec.cidr",
      value: wanted.spec.cidr,
      reason: `cannot change from ${stored.spec.cidr}: make a new pool and move workloads there`,
    });
  if (stored.spec.blockSize !== undefined && wanted.spec.blockSize !== stored.spec.blockSize)
    faults.push({
      field: "spec.blockSize",
      value: wanted.spec.blockSize,
      reason: `cannot change from ${stored.spec.blockSize}: make a new pool and move workloads there`,
    });
  const uses = (pool: Pool) => pool.spec.allowedUses?.includes("LoadBalancer") === true;
  if (uses(stored) && !uses(wanted))
    faults.push({
      field: "spec.allowedUses",
      value: wanted.spec.allowedUses,
      reason: "a LoadBalancer pool cannot be put to another use",
    });
  return faults;
}
