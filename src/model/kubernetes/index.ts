export { liveMigrationFromKubeVirt } from "./live-migration.ts";
export { convertKubernetesPolicySpec, networkPolicyFromKubernetes } from "./network-policy.ts";
export { kubernetesNodeFrom, nodeFromKubernetes } from "./node.ts";
export {
  isWorkloadPod,
  POD_IP_ANNOTATION,
  POD_IPS_ANNOTATION,
  podAnnotations,
  podInterfaceName,
  workloadEndpointFromPod,
} from "./pod.ts";
export {
  type ProfileOrigin,
  profileFromNamespace,
  profileFromServiceAccount,
  profileOrigin,
  serviceAccountProfileName,
} from "./profiles.ts";
export { parseQuantity } from "./quantity.ts";
export { convertUid } from "./uid.ts";
