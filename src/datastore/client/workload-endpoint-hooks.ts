// A workload endpoint's name is made of its node, orchestrator, workload and interface; nobody chooses another.
import {
  ignoreUnreadable,
  readWorkloadNameFields,
  type Resource,
  workloadEndpointName,
  WorkloadNameError,
  type WorkloadNameFields,
} from "../../model/index.ts";
import { Unsupported, ValidationFailed } from "../errors.ts";
import type { Flow, FlowContext } from "./kind-hooks.ts";

/** In Kubernetes an endpoint is its pod: the CNI plugin notes addresses there, nobody else writes any. */
function refuseInKubernetes(operation: string, { kind, metadata }: Resource, { store }: FlowContext): void {
  if (store.name !== "kubernetes") return;
  const id = `${kind}(${metadata.namespace ?? ""}/${metadata.name})`;
  throw new Unsupported(operation, id, "it is made from its pod");
}

export const workloadEndpointFlow: Flow = {
  beforeCreate: async (resource, context) => refuseInKubernetes("Create", resource, context),
  beforeUpdate: async (resource, _current, context) => refuseInKubernetes("Update", resource, context),
  beforeDelete: async ({ value }, context) => {
    refuseInKubernetes("Delete", value, context);
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
          reason: `the endpoint's fields make it ${name}: leave the name out or use that`,
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
