// Defines the kind LiveMigration: a workload that migrates between nodes. It is derived from KubeVirt; users never write it.
import type { Resource } from "../resource.ts";

interface WorkloadIdentifier {
  readonly hostname?: string;
  readonly orchestratorID?: string;
  readonly workloadID?: string;
}
interface EndpointIdentifier extends WorkloadIdentifier {
  readonly endpointID?: string;
}
export interface LiveMigrationSpec {
  readonly source?: { readonly workload: WorkloadIdentifier } | { readonly workloadEndpoint: EndpointIdentifier };
  readonly target?: { readonly selector: string } | { readonly workloadEndpoint: EndpointIdentifier };
}
export type LiveMigrationResource = Resource<"LiveMigration", LiveMigrationSpec, never>;
