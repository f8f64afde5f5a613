// Affinities written by earlier programs lack the labels by which the Kubernetes API finds a host's own. Writing them
// again adds the labels; where they are there already, nothing changes.
import type { Owner } from "./block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";

/** Elsewhere than in the Kubernetes API there is nothing to do. */
export async function upgradeHost(context: Context, owner: Owner): Promise<void> {
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
