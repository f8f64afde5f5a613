// Declares the environment variables of calico-kube-controllers. Most override a field of KubeControllersConfiguration.
import type { EnvironmentTable } from "../lib/environment-table.ts";

export const CONTROLLERS_VARIABLES: EnvironmentTable = {
  LOG_LEVEL: {
    meaning: "Log severity: `none`, `debug`, `info`, `warning`, `error`, `fatal` or `panic`.",
    default: "info",
  },
  RECONCILER_PERIOD: { meaning: "Interval at which controllers compare everything again.", default: "5m" },
  ENABLED_CONTROLLERS: {
    meaning:
      "Controllers that run, separated by commas: `node`, `policy`, `namespace` (or `profile`), `serviceaccount`, `workloadendpoint`, `loadbalancer`.",
  },
  COMPACTION_PERIOD: { meaning: "Interval of etcd compaction; 0 turns it off.", default: "10m" },
  HEALTH_ENABLED: { meaning: "Whether health checks run.", default: "true" },
  SYNC_NODE_LABELS: { meaning: "Whether labels of Kubernetes nodes are copied to Calico nodes.", default: "true" },
  AUTO_HOST_ENDPOINTS: { meaning: "`enabled`: create a host endpoint for each node.", default: "disabled" },
  POLICY_WORKERS: { meaning: "Number of policies that are written at the same time.", default: "1" },
  PROFILE_WORKERS: { meaning: "Number of profiles that are written at the same time.", default: "1" },
  WORKLOAD_ENDPOINT_WORKERS: {
    meaning: "Number of workload endpoints that are written at the same time.",
    default: "1",
  },
  CALICO_LEASE_DURATION: { meaning: "Duration of the leader lease. Only calico-ts has this variable.", default: "15s" },
  CALICO_HEALTH_PERIOD: { meaning: "Interval of health checks. Only calico-ts has this variable.", default: "10s" },
  CALICO_CERTIFICATES: {
    meaning: "Programs for which certificates are created, separated by commas. Only calico-ts has this variable.",
  },
  CLUSTER_TYPE: { meaning: "Words for `clusterType` of ClusterInformation.", default: "k8s" },
  POD_NAMESPACE: { meaning: "Namespace of the leader lease and of certificates.", default: "the namespace of the pod" },
  CALICO_KUBE_CONTROLLERS_INNER: {
    meaning: "`1`: exit with code 129 instead of restarting, for a wrapper that restarts the program.",
  },
};
