// Emits the Kubernetes resources and LiveMigrations that Felix reads, unchanged. A resource in which a field that Felix
// reads has the wrong type is rejected.
import { readEndpointSlice } from "../readers/endpoint-slice.ts";
import { readService } from "../readers/kubernetes-service.ts";
import { readLiveMigration } from "../readers/live-migration.ts";
import { rejectWrongTypes } from "../readers/unreadable.ts";
import { passThroughIf } from "./processor.ts";

const checkService = rejectWrongTypes(
  "spec.type",
  "spec.clusterIP",
  "spec.clusterIPs",
  "spec.loadBalancerIP",
  "spec.externalIPs",
  "spec.ports",
  "status",
);
const checkSlice = rejectWrongTypes("endpoints", "ports", "spec.endpoints", "spec.ports");
const checkMigration = rejectWrongTypes("spec.source", "spec.target");

export const kubernetesServiceProcessor = passThroughIf((resource) => readService(resource, checkService));
export const endpointSliceProcessor = passThroughIf((resource) => readEndpointSlice(resource, checkSlice));
export const liveMigrationProcessor = passThroughIf((resource) => readLiveMigration(resource, checkMigration));
