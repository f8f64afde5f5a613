// Converts IP pools to the form that the calculation graph uses.
import { type Encapsulation, readPool } from "../readers/ip-pool.ts";
import { affects, type OnUnreadable } from "../readers/unreadable.ts";
import type { Pool } from "../stored/derived.ts";
import type { PoolKey } from "../keys/keys.ts";
import type { Resource } from "../resource.ts";
import { conflictResolving } from "./conflict-cache.ts";
import type { UpdateProcessor } from "./processor.ts";

/** If one of these fields cannot be read, the pool is not used, because its traffic might be sent without encapsulation. */
const CALCULATED_FIELDS = [
  "spec.cidr",
  "spec.ipipMode",
  "spec.vxlanMode",
  "spec.natOutgoing",
  "spec.disabled",
  "spec.disableBGPExport",
  "spec.assignmentMode",
  "spec.allowedUses",
];
const rejectUnreadableIn =
  (fields: readonly string[]): OnUnreadable =>
  (error) => {
    if (affects(error, fields)) throw error;
  };

export const poolProcessor = (): UpdateProcessor => conflictResolving(convertPool);

/** Also emits the node selector, for the allocator of tunnel addresses. */
export const tunnelPoolProcessor = (): UpdateProcessor =>
  conflictResolving((resource) => {
    const nodeSelector = readPool(resource, rejectUnreadableIn(["spec.nodeSelector"]))?.nodeSelector ?? "";
    const pool = convertPool(resource);
    return pool === undefined || nodeSelector === "" ? pool : { ...pool, value: { ...pool.value, nodeSelector } };
  });

/** @throws WrongShape if the pool cannot be used */
export function convertPool(resource: Resource): { readonly key: PoolKey; readonly value: Pool } | undefined {
  const pool = readPool(resource, rejectUnreadableIn(CALCULATED_FIELDS));
  if (pool === undefined) return undefined;
  return {
    key: { type: "pool", cidr: pool.cidr },
    value: {
      cidr: pool.cidr,
      ipipMode: V1_ENCAPSULATION[pool.ipipMode],
      vxlanMode: V1_ENCAPSULATION[pool.vxlanMode],
      masquerade: pool.natOutgoing,
      ipam: !pool.isDisabled,
      disabled: pool.isDisabled,
      disableBgpExport: pool.disableBgpExport,
      assignmentMode: pool.isAutomatic ? "Automatic" : "Manual",
      allowedUses: pool.allowedUses,
    },
  };
}

const V1_ENCAPSULATION: Readonly<Record<Encapsulation, Pool["ipipMode"]>> = {
  Never: "",
  Always: "always",
  CrossSubnet: "cross-subnet",
};
