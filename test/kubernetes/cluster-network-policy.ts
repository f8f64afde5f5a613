// Defines the CRD of ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2), which is not built into Kubernetes.

/** As the Kubernetes project publishes it, without its schema. */
export const CLUSTER_NETWORK_POLICY = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: {
    name: "clusternetworkpolicies.policy.networking.k8s.io",
    annotations: { "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/network-policy-api/pull/300" },
  },
  spec: {
    group: "policy.networking.k8s.io",
    scope: "Cluster",
    names: { kind: "ClusterNetworkPolicy", plural: "clusternetworkpolicies" },
    versions: [
      {
        name: "v1alpha2",
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
      },
    ],
  },
};
