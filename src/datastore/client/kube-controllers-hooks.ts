// In the Kubernetes datastore a Calico node is the Kubernetes node: its labels are in step whatever anybody says, so
// switching that off is refused rather than ignored.
import { ignoreUnreadable, readSyncLabels, type Resource } from "../../model/index.ts";
import { ValidationFailed } from "../errors.ts";
import type { Flow, FlowContext } from "./kind-hooks.ts";

async function checkSyncLabels(resource: Resource, { store }: FlowContext): Promise<void> {
  if (store.name !== "kubernetes") return;
  if (readSyncLabels(resource, ignoreUnreadable) === "Disabled")
    throw new ValidationFailed([
      {
        field: "spec.controllers.node.syncLabels",
        value: "Disabled",
        reason: "invalid SyncLabels value: in the Kubernetes datastore labels are always in step",
      },
    ]);
}

export const kubeControllersFlow: Flow = {
  beforeCreate: checkSyncLabels,
  beforeUpdate: (resource, _current, context) => checkSyncLabels(resource, context),
};
