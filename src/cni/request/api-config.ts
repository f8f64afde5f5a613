// Determines how to connect to the datastore and the Kubernetes API, from the network configuration and the environment.
import { type ApiConfig, configFromEnvironment } from "../../datastore/index.ts";
import type { NetConf } from "./net-conf.ts";
import type { Environment } from "./request.ts";

/** True if commands of this network read pods and namespaces from the Kubernetes API. */
export const usesKubernetesApi = (conf: NetConf): boolean =>
  conf.policy.type === "k8s" || conf.kubernetes.kubeconfig !== "";

/** Settings of the network configuration take precedence over the environment. */
export function apiConfig(conf: NetConf, env: Environment): ApiConfig {
  const { datastore, kubernetes, policy } = conf;
  const configured = {
    datastoreType: datastore.type,
    sqlitePath: datastore.sqlitePath,
    etcdEndpoints: datastore.etcdEndpoints,
    etcdDiscoverySrv: datastore.etcdDiscoverySrv,
    etcdKeyFile: datastore.etcdKeyFile,
    etcdCertFile: datastore.etcdCertFile,
    etcdCACertFile: datastore.etcdCaCertFile,
    kubeconfig: kubernetes.kubeconfig,
    k8sAPIEndpoint: kubernetes.k8sApiRoot || (policy.k8sApiRoot.split("/api/")[0] ?? ""),
    k8sAPIToken: policy.k8sAuthToken,
    k8sCertFile: policy.k8sClientCertificate,
    k8sKeyFile: policy.k8sClientKey,
    k8sCAFile: policy.k8sCertificateAuthority,
    calicoAPIGroup: datastore.calicoApiGroup,
  };
  const notEmpty = Object.fromEntries(Object.entries(configured).filter(([, value]) => value !== ""));
  return {
    ...configFromEnvironment(env),
    ...notEmpty,
    ...(datastore.qps > 0 ? { k8sClientQPS: datastore.qps } : {}),
    ...(datastore.burst > 0 ? { k8sClientBurst: datastore.burst } : {}),
  };
}
