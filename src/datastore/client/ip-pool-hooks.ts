// Rejects overlapping IP pools and changes of a pool's CIDR or block size, and disables a pool before it is deleted.
import { cidrContains, cidrLength, cidrsOverlap } from "../../lib/ip/ip.ts";
import { delay } from "../../lib/retry.ts";
import {
  ignoreUnreadable,
  type IpPool,
  readPool,
  type Resource,
  type ResourceKey,
  specFields,
  withSpecFields,
} from "../../model/index.ts";
import type { Revision, Stored } from "../datastore.ts";
import { ValidationFailed } from "../errors.ts";
import type { KindHooks, HookContext } from "./kind-hooks.ts";
import { upsert } from "./upsert.ts";

/** Time to wait after a pool is disabled, until assignments that still saw it enabled have ended. */
const SETTLE_MS = 500;

const read = (resource: Resource): IpPool | undefined => readPool(resource, ignoreUnreadable);
const reject = (field: string, value: unknown, reason: string): never => {
  throw new ValidationFailed([{ field, value, reason }]);
};

export const ipPoolHooks: KindHooks = {
  beforeCreate: async (pool, context) => {
    if (context.unsafe) return;
    await rejectOverlap(pool, context);
    await rejectOtherBlockSize(pool, context);
  },
  beforeUpdate: async (pool, current, context) => {
    if (context.unsafe) return;
    const [after, before] = [read(pool), read(current)];
    if (after?.cidr !== before?.cidr)
      reject("spec.cidr", after?.cidr, `cannot be changed from ${before?.cidr}; create another pool`);
    if (after?.blockSize !== before?.blockSize)
      reject("spec.blockSize", after?.blockSize, `cannot be changed from ${before?.blockSize}; create another pool`);
    const forServices = before?.allowedUses.includes("LoadBalancer") ?? false;
    if (forServices && after?.allowedUses.includes("LoadBalancer") !== true)
      reject("spec.allowedUses", after?.allowedUses.join(), "cannot be changed away from LoadBalancer");
  },
  afterWrite: async (pool, context) => {
    if (context.encapsulationInFelixConfiguration) await enableEncapsulation(read(pool), context);
  },
  beforeDelete: async (stored, context) => {
    if (context.unsafe) return undefined;
    const pool = read(stored.value);
    if (pool === undefined) return undefined; // without a valid CIDR it has no assignments
    const revision = pool.isDisabled ? undefined : await disable(stored, context);
    if (context.addresses !== undefined) {
      if (revision !== undefined) await delay(SETTLE_MS, context.signal);
      await context.addresses.releasePool(pool.cidr, context.signal);
    }
    return revision;
  },
};

async function rejectOverlap(pool: Resource, { store, signal }: HookContext): Promise<void> {
  const cidr = read(pool)?.cidr;
  if (cidr === undefined) return;
  const { items } = await store.list({ type: "resource", kind: "IPPool" }, { ...(signal && { signal }) });
  for (const { value: other } of items) {
    const range = read(other)?.cidr;
    if (other.metadata.name === pool.metadata.name || range === undefined || !cidrsOverlap(cidr, range)) continue;
    const [a, b] = [pool.metadata.name, other.metadata.name];
    reject("spec.cidr", cidr, `IPPool(${a}) CIDR overlaps with IPPool(${b}) CIDR ${range}; shrink or delete one`);
  }
}

/** Blocks that remain from an earlier pool of the same range would be read with the wrong size. */
async function rejectOtherBlockSize(pool: Resource, { store, signal }: HookContext): Promise<void> {
  const { cidr, blockSize } = read(pool) ?? {};
  if (cidr === undefined || blockSize === undefined) return;
  const { items } = await store.list({ type: "block" }, { ...(signal && { signal }) });
  const other = items.find(({ key }) => cidrContains(cidr, key.cidr) && cidrLength(key.cidr) !== blockSize);
  if (other !== undefined)
    reject(
      "spec.blockSize",
      blockSize,
      `the range contains block ${other.key.cidr}; use ${cidrLength(other.key.cidr)}, or release its addresses`,
    );
}

/** Disables the pool, so that no address is assigned from it, and returns the new revision. */
async function disable(stored: Stored<ResourceKey>, { store, signal }: HookContext): Promise<Revision> {
  const value = withSpecFields(stored.value, { disabled: true });
  const written = await store.update({ ...stored, value }, { ...(signal && { signal }) });
  return written.revision;
}

/**
 * Enables encapsulation in FelixConfiguration, which agents older than 3.22 read instead of the pools. Does not overwrite
 * existing values.
 */
async function enableEncapsulation(pool: IpPool | undefined, { store, signal }: HookContext): Promise<void> {
  if (pool === undefined || pool.isDisabled) return;
  const switches = {
    ...(pool.ipipMode !== "Never" && { ipipEnabled: true }),
    ...(pool.vxlanMode !== "Never" && { vxlanEnabled: true }),
  };
  if (Object.keys(switches).length === 0) return;
  await upsert({ store, signal }, { kind: "FelixConfiguration", name: "default" }, (current) => {
    const before = current === undefined ? {} : specFields(current);
    const after = { ...switches, ...before };
    return Object.keys(after).length === Object.keys(before).length ? undefined : after;
  });
}
