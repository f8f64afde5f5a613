export { convertKubernetesPolicySpec, networkPolicyFromKubernetes } from "./network-policy.ts";
