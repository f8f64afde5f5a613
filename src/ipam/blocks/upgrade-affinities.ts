// Adds labels to a host's affinities in Kubernetes. Earlier versions wrote affinities without the labels by which the API
// server selects those of a host. Writing an affinity again adds the labels.
import type { BlockOwner } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";

/** Does nothing in other datastores. */
export async function upgradeHost(context: Context, owner: BlockOwner): Promise<void> {
  const { records } = context;
  if (records.store.name !== "kubernetes") return;
  for (const { key } of await records.affinitiesOf(owner))
    await retryOnConflict(context, `affinity for ${key.cidr}`, async () => {
      const affinity = await records.affinity(owner, key.cidr);
      if (affinity === undefined) return true;
      try {
        await records.updateAffinity(affinity, affinity.value.state);
        return true;
      } catch (error) {
        if (isConflict(error)) return undefined;
        throw error;
      }
    });
}
