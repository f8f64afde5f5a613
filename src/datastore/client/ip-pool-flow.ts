// Pools never overlap, keep their range and block size for life, and are switched off before they go.
import { cidrContains, cidrLength, cidrsOverlap, tryParseCidr } from "../../lib/ip.ts";
import { delay } from "../../lib/retry.ts";
import type { Resource, ResourceKey, SpecOf } from "../../model/index.ts";
import type { Revision, Stored } from "../datastore.ts";
import { ValidationFailed } from "../errors.ts";
import type { Flow, FlowContext } from "./flow.ts";
import { upsert } from "./upsert.ts";

/** Others that assign right now saw the pool enabled; after so long they have either finished or seen it disabled. */
const SETTLE_MS = 500;

type Spec = SpecOf<"IPPool">;
const specOf = (resource: Resource): Spec => resource.spec as Spec;
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
    const [after, before] = [specOf(pool), specOf(current)];
    if (tryParseCidr(after.cidr) !== tryParseCidr(before.cidr))
      refuse("spec.cidr", after.cidr, `cannot be changed from ${before.cidr}: make another pool`);
    if (after.blockSize !== before.blockSize)
      refuse("spec.blockSize", after.blockSize, `cannot be changed from ${before.blockSize}: make another pool`);
    const forServices = before.allowedUses?.includes("LoadBalancer") ?? false;
    if (forServices && !after.allowedUses.includes("LoadBalancer"))
      refuse("spec.allowedUses", after.allowedUses.join(), "cannot be changed away from LoadBalancer");
  },
  afterWrite: async (pool, context) => {
    if (context.encapsulationInFelixConfiguration) await enableEncapsulation(specOf(pool), context);
  },
  beforeDelete: async (stored, context) => {
    if (context.unsafe) return undefined;
    const cidr = tryParseCidr(specOf(stored.value).cidr);
    if (cidr === undefined) return undefined; // nobody can assign from it, and nothing of it can be found
    const revision = specOf(stored.value).disabled === true ? undefined : await disable(stored, context);
    if (context.addresses !== undefined) {
      if (revision !== undefined) await delay(SETTLE_MS, context.signal);
      await context.addresses.releasePool(cidr, context.signal);
    }
    return revision;
  },
};

async function refuseOverlap(pool: Resource, { store, signal }: FlowContext): Promise<void> {
  const cidr = tryParseCidr(specOf(pool).cidr);
  if (cidr === undefined) return;
  const { items } = await store.list({ type: "resource", kind: "IPPool" }, { ...(signal && { signal }) });
  for (const { value: other } of items) {
    const range = tryParseCidr(specOf(other).cidr);
    if (other.metadata.name === pool.metadata.name || range === undefined || !cidrsOverlap(cidr, range)) continue;
    const [a, b] = [pool.metadata.name, other.metadata.name];
    refuse("spec.cidr", cidr, `IPPool(${a}) CIDR overlaps with IPPool(${b}) CIDR ${range}; shrink or delete one`);
  }
}

/** Blocks left by an earlier pool of the same range would be read with the wrong size. */
async function refuseOtherBlocks(pool: Resource, { store, signal }: FlowContext): Promise<void> {
  const { blockSize } = specOf(pool);
  const cidr = tryParseCidr(specOf(pool).cidr);
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
  const spec = { ...specOf(stored.value), disabled: true };
  const written = await store.update({ ...stored, value: { ...stored.value, spec } }, { ...(signal && { signal }) });
  return written.revision;
}

/** Agents up to 3.22 read this instead of the pools. What an operator has said there stays said. */
async function enableEncapsulation(pool: Spec, { store, signal }: FlowContext): Promise<void> {
  const switches = {
    ...(pool.ipipMode !== "Never" && { ipipEnabled: true }),
    ...(pool.vxlanMode !== "Never" && { vxlanEnabled: true }),
  };
  if (Object.keys(switches).length === 0 || pool.disabled === true) return;
  await upsert({ store, signal }, { kind: "FelixConfiguration", name: "default" }, (current) => {
    const before = (current?.spec ?? {}) as object;
    const after = { ...switches, ...before };
    return Object.keys(after).length === Object.keys(before).length ? undefined : after;
  });
}
