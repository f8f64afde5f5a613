// Pools never overlap, keep their range and block size for life, and are switched off before they go.
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
import type { Flow, FlowContext } from "./kind-hooks.ts";
import { upsert } from "./upsert.ts";

/** Others that assign right now saw the pool enabled; after so long they have either finished or seen it disabled. */
const SETTLE_MS = 500;

const read = (resource: Resource): IpPool | undefined => readPool(resource, ignoreUnreadable);
const refuse = (field: string, value: unknown, reason: string): never => {
  throw new ValidationFailed([{ field, value, reason }]);
};

export const ipPoolFlow: Flow = {
  beforeCreate: async (pool, context) => {
    if (context.unsafe) return;
    await refuseOverlap(pool, context);
    await refuseOtherBlocks(pool, context);
  },
  beforeUpdate: async (pool, current, context) => {
    if (context.unsafe) return;
    const [after, before] = [read(pool), read(current)];
    if (after?.cidr !== before?.cidr)
      refuse("spec.cidr", after?.cidr, `cannot be changed from ${before?.cidr}: make another pool`);
    if (after?.blockSize !== before?.blockSize)
      refuse("spec.blockSize", after?.blockSize, `cannot be changed from ${before?.blockSize}: make another pool`);
    const forServices = before?.allowedUses.includes("LoadBalancer") ?? false;
    if (forServices && after?.allowedUses.includes("LoadBalancer") !== true)
      refuse("spec.allowedUses", after?.allowedUses.join(), "cannot be changed away from LoadBalancer");
  },
  afterWrite: async (pool, context) => {
    if (context.encapsulationInFelixConfiguration) await enableEncapsulation(read(pool), context);
  },
  beforeDelete: async (stored, context) => {
    if (context.unsafe) return undefined;
    const pool = read(stored.value);
    if (pool === undefined) return undefined; // nobody can assign from it, and nothing of it can be found
    const revision = pool.isDisabled ? undefined : await disable(stored, context);
    if (context.addresses !== undefined) {
      if (revision !== undefined) await delay(SETTLE_MS, context.signal);
      await context.addresses.releasePool(pool.cidr, context.signal);
    }
    return revision;
  },
};

async function refuseOverlap(pool: Resource, { store, signal }: FlowContext): Promise<void> {
  const cidr = read(pool)?.cidr;
  if (cidr === undefined) return;
  const { items } = await store.list({ type: "resource", kind: "IPPool" }, { ...(signal && { signal }) });
  for (const { value: other } of items) {
    const range = read(other)?.cidr;
    if (other.metadata.name === pool.metadata.name || range === undefined || !cidrsOverlap(cidr, range)) continue;
    const [a, b] = [pool.metadata.name, other.metadata.name];
    refuse("spec.cidr", cidr, `IPPool(${a}) CIDR overlaps with IPPool(${b}) CIDR ${range}; shrink or delete one`);
  }
}

/** Blocks left by an earlier pool of the same range would be read with the wrong size. */
async function refuseOtherBlocks(pool: Resource, { store, signal }: FlowContext): Promise<void> {
  const { cidr, blockSize } = read(pool) ?? {};
  if (cidr === undefined || blockSize === undefined) return;
  const { items } = await store.list({ type: "block" }, { ...(signal && { signal }) });
  const other = items.find(({ key }) => cidrContains(cidr, key.cidr) && cidrLength(key.cidr) !== blockSize);
  if (other !== undefined)
    refuse(
      "spec.blockSize",
      blockSize,
      `the range holds block ${other.key.cidr}: use ${cidrLength(other.key.cidr)}, or release its addresses`,
    );
}

/** Nobody assigns from it any more. Gives the revision that made it so. */
async function disable(stored: Stored<ResourceKey>, { store, signal }: FlowContext): Promise<Revision> {
  const value = withSpecFields(stored.value, { disabled: true });
  const written = await store.update({ ...stored, value }, { ...(signal && { signal }) });
  return written.revision;
}

/** Agents up to 3.22 read this instead of the pools. What an operator has said there stays said. */
async function enableEncapsulation(pool: IpPool | undefined, { store, signal }: FlowContext): Promise<void> {
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
