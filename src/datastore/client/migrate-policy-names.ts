// Policies that older releases stored as `default.<name>` move to their own names. The new one is written before the old
// one goes, so at no moment does a policy not apply; a run that is cut off is finished by the next.
import type { KindName, ResourceKey } from "../../model/index.ts";
import type { CallOptions, Datastore, Stored } from "../datastore.ts";
import { AlreadyExists, NotFound } from "../errors.ts";

const KINDS = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
] as const satisfies readonly KindName[];

/** @returns how many moved */
export async function migratePolicyNames(store: Datastore, options: CallOptions = {}): Promise<number> {
  let moved = 0;
  for (const kind of KINDS)
    for (const item of (await store.list({ type: "resource", kind }, options)).items)
      if (item.key.name !== item.value.metadata.name) {
        await move(store, item, options);
        moved++;
      }
  return moved;
}

async function move(store: Datastore, item: Stored<ResourceKey>, options: CallOptions): Promise<void> {
  const { key, value, revision } = item;
  try {
    await store.create({ key: { ...key, name: value.metadata.name }, value }, options);
  } catch (error) {
    if (!(error instanceof AlreadyExists)) throw error; // an earlier run came this far
  }
  try {
    await store.delete(key, { ...options, revision });
  } catch (error) {
    if (!(error instanceof NotFound)) throw error;
  }
}
