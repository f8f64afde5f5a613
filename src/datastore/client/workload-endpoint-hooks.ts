// Computes the name of a workload endpoint from its node, orchestrator, workload and interface, and rejects another name.
import {
  ignoreUnreadable,
  readWorkloadNameFields,
  type Resource,
  workloadEndpointName,
  WorkloadNameError,
  type WorkloadNameFields,
} from "../../model/index.ts";
import { Unsupported, ValidationFailed } from "../errors.ts";
import type { KindHooks, HookContext } from "./kind-hooks.ts";

/** In Kubernetes an endpoint is derived from its pod; only the CNI plugin writes to it (addresses, as annotations). */
function rejectInKubernetes(operation: string, { kind, metadata }: Resource, { store }: HookContext): void {
  if (store.name !== "kubernetes") return;
  const id = `${kind}(${metadata.namespace ?? ""}/${metadata.name})`;
  throw new Unsupported(operation, id, "it is derived from its pod");
}

export const workloadEndpointHooks: KindHooks = {
  beforeCreate: async (resource, context) => rejectInKubernetes("Create", resource, context),
  beforeUpdate: async (resource, _current, context) => rejectInKubernetes("Update", resource, context),
  beforeDelete: async ({ value }, context) => {
    rejectInKubernetes("Delete", value, context);
    return undefined;
  },
  prepare: (resource) => {
    const fields = readWorkloadNameFields(resource, ignoreUnreadable);
    const name = computedName(fields);
    const given = resource.metadata.name ?? "";
    if (given !== "" && given !== name)
      throw new ValidationFailed([
        {
          field: "metadata.name",
          value: given,
          reason: `the name must be ${name}, which is computed from the endpoint's fields; use it, or omit the name`,
        },
      ]);
    const labels = {
      ...resource.metadata.labels,
      "projectcalico.org/namespace": resource.metadata.namespace ?? "",
      "projectcalico.org/orchestrator": fields.orchestrator ?? "",
    };
    return { ...resource, metadata: { ...resource.metadata, name, labels } };
  },
};

function computedName(fields: WorkloadNameFields): string {
  try {
    return workloadEndpointName(fields);
  } catch (error) {
    if (!(error instanceof WorkloadNameError)) throw error;
    throw new ValidationFailed([{ field: `spec.${error.field}`, value: "", reason: error.reason }], { cause: error });
  }
}
