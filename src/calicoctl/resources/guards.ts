// Rejects writes to resources that calicoctl never writes: ClusterInformation and policies converted from Kubernetes.
import { type ResourceName, Unsupported } from "../../datastore/index.ts";

export type WriteOperation = "create or apply" | "replace" | "delete";

export function rejectReadOnly({ kind, name, namespace }: ResourceName, operation: WriteOperation): void {
  if (kind === "ClusterInformation") throw new Unsupported(operation, kind);
  // Policies that are converted from a Kubernetes NetworkPolicy must be changed there.
  if (kind === "NetworkPolicy" && name.startsWith("knp.default."))
    throw new Unsupported(
      operation,
      `NetworkPolicy(${namespace ?? ""}/${name})`,
      "it is converted from a Kubernetes NetworkPolicy; change that one",
    );
}
