// Defines the kind ClusterInformation: the identity of the cluster, and whether its datastore may be used.
import { field, flag, object, pointer, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  clusterGUID: field(text()),
  clusterType: field(text()),
  calicoVersion: field(text()),
  datastoreReady: pointer(flag()),
  variant: field(text()),
});
export type ClusterInformationResource = ResourceFor<"ClusterInformation", typeof spec>;

export default defineKind({
  kind: "ClusterInformation",
  description: "The identity of the cluster, and whether its datastore may be used.",
  spec,
  nameRule: (name) => (name === "default" ? undefined : "there is one, named default"),
  printerColumns: [
    { name: "Version", type: "string", jsonPath: ".spec.calicoVersion" },
    { name: "Ready", type: "boolean", jsonPath: ".spec.datastoreReady" },
    { name: "Types", type: "string", jsonPath: ".spec.clusterType" },
  ],
});
