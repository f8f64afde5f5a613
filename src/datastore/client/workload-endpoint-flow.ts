// A workload endpoint's name is made of its node, orchestrator, workload and interface; nobody chooses another.
import { type Resource, type SpecOf, workloadEndpointName, WorkloadNameError } from "../../model/index.ts";
import { ValidationFailed } from "../errors.ts";
import type { Flow } from "./flow.ts";

export const workloadEndpointFlow: Flow = {
  prepare: (resource) => {
    const spec = resource.spec as SpecOf<"WorkloadEndpoint">;
    const name = computedName(resource);
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
      "projectcalico.org/orchestrator": spec.orchestrator ?? "",
    };
    return { ...resource, metadata: { ...resource.metadata, name, labels } };
  },
};

function computedName(resource: Resource): string {
  try {
    return workloadEndpointName(resource.spec as SpecOf<"WorkloadEndpoint">);
  } catch (error) {
    if (!(error instanceof WorkloadNameError)) throw error;
    throw new ValidationFailed([{ field: `spec.${error.field}`, value: "", reason: error.reason }], { cause: error });
  }
}
