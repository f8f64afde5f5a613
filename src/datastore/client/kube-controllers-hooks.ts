// Rejects `syncLabels: Disabled` in the Kubernetes datastore. A Calico node is the Kubernetes node there, so its labels are
// always the same, and the setting would have no effect.
import { ignoreUnreadable, readSyncLabels, type Resource } from "../../model/index.ts";
import { ValidationFailed } from "../errors.ts";
import type { KindHooks, HookContext } from "./kind-hooks.ts";

async function checkSyncLabels(resource: Resource, { store }: HookContext): Promise<void> {
  if (store.name !== "kubernetes") return;
  if (readSyncLabels(resource, ignoreUnreadable) === "Disabled")
    throw new ValidationFailed([
      {
        field: "spec.controllers.node.syncLabels",
        value: "Disabled",
        reason: "invalid SyncLabels value: labels are always synchronized in the Kubernetes datastore",
      },
    ]);
}

export const kubeControllersHooks: KindHooks = {
  beforeCreate: checkSyncLabels,
  beforeUpdate: (resource, _current, context) => checkSyncLabels(resource, context),
};
