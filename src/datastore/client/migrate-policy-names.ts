// Renames policies that older releases stored as `default.<name>`. The new entry is created before the old one is deleted,
// so the policy always applies; the next run completes an interrupted one.
import type { KindName, ResourceKey } from "../../model/index.ts";
import type { CallOptions, Datastore, Stored } from "../datastore.ts";
import { AlreadyExists, DatastoreError, NotFound, Unavailable } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";

const KINDS = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
] as const satisfies readonly KindName[];

interface PolicyNameMigration {
  readonly moved: number;
  /** Policies that the datastore did not accept under their new name. They still apply under the old one. */
  readonly failures: readonly { readonly policy: string; readonly error: DatastoreError }[];
}

/**
 * Moves each policy that can be moved. The new name may come from an annotation that the owner of a namespace writes, so a
 * name that the datastore rejects must not stop the migration of other policies.
 */
export async function migratePolicyNames(store: Datastore, options: CallOptions = {}): Promise<PolicyNameMigration> {
  const failures: { readonly policy: string; readonly error: DatastoreError }[] = [];
  let moved = 0;
  for (const kind of KINDS)
    for (const item of (await store.list({ type: "resource", kind }, options)).items)
      if (item.key.name !== item.value.metadata.name)
        try {
          await move(store, item, options);
          moved++;
        } catch (error) {
          if (!(error instanceof DatastoreError) || error instanceof Unavailable) throw error;
          failures.push({ policy: nameOfKey(item.key), error });
        }
  return { moved, failures };
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
