export { liveMigrationFromKubeVirt } from "./live-migration.ts";
export { convertKubernetesPolicySpec, networkPolicyFromKubernetes } from "./network-policy.ts";
export { kubernetesNodeFrom, nodeFromKubernetes } from "./node.ts";
export {
  isWorkloadPod,
  podAddressesInUse,
  podErasure,
  podPatch,
  workloadEndpointFromPod,
} from "./pod.ts";
export {
  profileFromNamespace,
  profileFromServiceAccount,
  profileOrigin,
} from "./profiles.ts";
export { convertUid } from "./uid.ts";
