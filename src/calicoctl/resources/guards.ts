// What calicoctl never writes, whoever asks: what the system keeps about itself, and what belongs to Kubernetes.
import { type ResourceName, Unsupported } from "../../datastore/index.ts";

export type WriteOperation = "create or apply" | "replace" | "delete";

export function refuseReadOnly({ kind, name, namespace }: ResourceName, operation: WriteOperation): void {
  if (kind === "ClusterInformation") throw new Unsupported(operation, kind);
  // Policies made from Kubernetes' own are changed there.
  if (kind === "NetworkPolicy" && name.startsWith("knp.default."))
    throw new Unsupported(
      operation,
      `NetworkPolicy(${namespace ?? ""}/${name})`,
      "it is made from a Kubernetes NetworkPolicy; change that one",
    );
}
