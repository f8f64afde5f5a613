// calicoctl datastore migrate-policy-names: policies that older releases stored as `default.<name>` move to their own
// names. The new one is written before the old one goes, so at no moment does a policy not apply; a run that is cut off
// is finished by the next.
import { AlreadyExists, type Datastore, NotFound, type Stored } from "../../datastore/index.ts";
import type { KindName, ResourceKey } from "../../model/index.ts";
import { openChecked } from "../client.ts";
import type { Call } from "../command.ts";

const KINDS = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
] as const satisfies readonly KindName[];

export async function run(call: Call): Promise<number> {
  await using store = await openChecked(call, { requests: "many" });
  let moved = 0;
  for (const kind of KINDS)
    for (const item of (await store.datastore.list({ type: "resource", kind })).items)
      if (item.key.name !== item.value.metadata.name) {
        await move(store.datastore, item);
        moved++;
      }
  call.world.out(
    moved === 0 ? "All policies have their own names already.\n" : `Successfully migrated ${moved} policies\n`,
  );
  return 0;
}

async function move(datastore: Datastore, { key, value, revision }: Stored<ResourceKey>): Promise<void> {
  try {
    await datastore.create({ key: { ...key, name: value.metadata.name }, value });
  } catch (error) {
    if (!(error instanceof AlreadyExists)) throw error; // an earlier run came this far
  }
  try {
    await datastore.delete(key, { revision });
  } catch (error) {
    if (!(error instanceof NotFound)) throw error;
  }
}
