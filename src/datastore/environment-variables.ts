// Declares the environment variables that choose a datastore. api-config.ts reads them.
import type { EnvironmentTable } from "../lib/environment-table.ts";

/** Each may have the prefix CALICO_, which takes precedence. */
export const DATASTORE_VARIABLES: EnvironmentTable = {
  DATASTORE_TYPE: {
    meaning:
      "Datastore: `sqlite`, `etcdv3` or `kubernetes`. If unset: etcd if its endpoints are set, otherwise Kubernetes if a kubeconfig or a service account is found, otherwise SQLite.",
  },
  CALICO_SQLITE_PATH: { meaning: "File of the SQLite datastore.", default: "/var/lib/calico/calico.db" },
  ETCD_ENDPOINTS: { meaning: "URLs of the etcd members, separated by commas." },
  ETCD_DISCOVERY_SRV: { meaning: "Domain whose SRV records name the etcd members. Excludes ETCD_ENDPOINTS." },
  ETCD_USERNAME: { meaning: "User name for etcd. Needs ETCD_PASSWORD." },
  ETCD_PASSWORD: { meaning: "Password for etcd." },
  ETCD_KEY_FILE: { meaning: "File with the private key of the client certificate for etcd." },
  ETCD_CERT_FILE: { meaning: "File with the client certificate for etcd." },
  ETCD_CA_CERT_FILE: { meaning: "File with the certificate authority of etcd." },
  KUBECONFIG: {
    meaning:
      "Kubeconfig files, separated by colons. If unset, and no other access is set: `~/.kube/config` if it exists.",
  },
  K8S_API_ENDPOINT: { meaning: "URL of the Kubernetes API server." },
  K8S_KEY_FILE: { meaning: "File with the private key of the client certificate for Kubernetes." },
  K8S_CERT_FILE: { meaning: "File with the client certificate for Kubernetes." },
  K8S_CA_FILE: { meaning: "File with the certificate authority of the Kubernetes API server." },
  CALICO_K8SAPITOKEN: { meaning: "Bearer token for Kubernetes." },
  K8S_CURRENT_CONTEXT: { meaning: "Context of the kubeconfig." },
  K8S_INSECURE_SKIP_TLS_VERIFY: {
    meaning: "`true`: do not verify the certificate of the API server.",
    default: "false",
  },
  K8S_DISABLE_NODE_POLL: { meaning: "Accepted for compatibility; has no effect.", default: "false" },
  K8S_CLIENT_QPS: { meaning: "Limit for requests per second to the Kubernetes API server." },
  K8S_CLIENT_BURST: { meaning: "Number of requests that may exceed K8S_CLIENT_QPS for a short time." },
  CALICO_API_GROUP: {
    meaning:
      "API group of the resources: `projectcalico.org/v3` or `crd.projectcalico.org/v1`. If unset, it is discovered.",
  },
  USE_POD_CIDR: { meaning: "`true`: use the pod CIDRs that Kubernetes assigns to nodes.", default: "false" },
  HOME: { meaning: "Folder of `.kube/config`." },
  KUBERNETES_SERVICE_HOST: { meaning: "Address of the API server. Set by Kubernetes in pods." },
  KUBERNETES_SERVICE_PORT: { meaning: "Port of the API server. Set by Kubernetes in pods." },
  FELIX_INTERFACEPREFIX: { meaning: "Prefix of the interfaces of pods on the host.", default: "cali" },
};
