// Converts keys to text for use in maps. A text is unique among keys of the same kind.
import type { HostEndpointKey, PolicyKey, WorkloadEndpointKey } from "../model/index.ts";
import type { PolicyId, WorkloadEndpointId } from "./messages.ts";

export type EndpointKey = WorkloadEndpointKey | HostEndpointKey;

export function endpointKeyText(key: EndpointKey): string {
  return key.type === "workloadEndpoint"
    ? `w ${key.host} ${key.orchestrator} ${key.workload} ${key.endpoint}`
    : `h ${key.host} ${key.endpoint}`;
}

export const policyKeyText = (key: PolicyKey): string => `${key.kind}/${key.namespace}/${key.name}`;

export const policyId = (key: PolicyKey): PolicyId => ({
  name: key.name,
  namespace: key.namespace,
  kind: key.kind,
});

export const workloadEndpointId = (key: WorkloadEndpointKey): WorkloadEndpointId => ({
  orchestrator: key.orchestrator,
  workload: key.workload,
  endpoint: key.endpoint,
});
