// Checks the metadata of a resource of any kind before it is written, and sets the UID and creation time of a new one.
import { kindOf, type Metadata, type Resource } from "../../model/index.ts";
import { type FieldFault, ValidationFailed } from "../errors.ts";

const fault = (field: string, value: string, reason: string): FieldFault => ({ field, value, reason });

function namespaceFault({ kind, metadata }: Resource): FieldFault[] {
  const { namespaced } = kindOf(kind);
  const namespace = metadata.namespace ?? "";
  if (namespaced && namespace === "")
    return [fault("metadata.namespace", "", "namespace is not specified on namespaced resource")];
  if (!namespaced && namespace !== "")
    return [fault("metadata.namespace", namespace, `${kind} is cluster-scoped and has no namespace`)];
  return [];
}

export function checkCreate(resource: Resource): void {
  const { name, generateName, resourceVersion } = resource.metadata;
  const faults = namespaceFault(resource);
  if ((name ?? "") === "") {
    const hint = generateName === undefined ? "" : " (generateName is not supported)";
    faults.push(fault("metadata.name", "", `field must be set for a Create request${hint}`));
  }
  if (resourceVersion !== undefined && resourceVersion !== "")
    faults.push(fault("metadata.resourceVersion", resourceVersion, "field must not be set for a Create request"));
  if (faults.length > 0) throw new ValidationFailed(faults);
}

export function checkUpdate(resource: Resource): void {
  const { metadata } = resource;
  const faults = namespaceFault(resource);
  for (const field of ["name", "resourceVersion", "creationTimestamp", "uid"] as const)
    if ((metadata[field] ?? "") === "")
      faults.push(fault(`metadata.${field}`, "", "field must be set for an Update request"));
  if (faults.length > 0) throw new ValidationFailed(faults);
}

/** Sets the UID and creation time, unless they are given (as in a backup). */
export function stamp(metadata: Metadata, now: () => Date): Metadata {
  return {
    ...metadata,
    uid: metadata.uid ?? crypto.randomUUID(),
    creationTimestamp: metadata.creationTimestamp ?? `${now().toISOString().slice(0, 19)}Z`,
  };
}
