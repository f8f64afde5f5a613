// Rejects the deletion of a built-in tier, and of a tier that contains policies.
import { isBuiltInTier } from "../../model/index.ts";
import { Unsupported } from "../errors.ts";
import type { KindHooks } from "./kind-hooks.ts";
import { tierOf } from "./policy-hooks.ts";

const TIERED = ["NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy"] as const;

export const tierHooks: KindHooks = {
  beforeDelete: async ({ key }, { store, signal }) => {
    if (isBuiltInTier(key.name)) throw new Unsupported("delete", `Tier(${key.name})`, "Cannot delete a built-in tier");
    for (const kind of TIERED) {
      const { items } = await store.list({ type: "resource", kind }, { ...(signal && { signal }) });
      const held = items.find((item) => tierOf(item.value) === key.name);
      if (held === undefined) continue;
      const { namespace, name } = held.value.metadata;
      const reason = `Cannot delete a non-empty tier: ${kind} ${namespace === undefined ? "" : `${namespace}/`}${name} is in it`;
      throw new Unsupported("delete", `Tier(${key.name})`, reason);
    }
    return undefined;
  },
};
