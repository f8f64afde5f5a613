// Builds the ConfigMap with the settings that an operator edits. The names are those of Calico.
import { type KubernetesObject, NAMESPACE } from "./objects.ts";

export interface ConfigMapOptions {
  readonly datastore: "kubernetes" | "etcdv3";
  readonly backend: "bird" | "vxlan";
  readonly typhaService: "none" | "calico-typha";
}

export function configMap({ datastore, backend, typhaService }: ConfigMapOptions): KubernetesObject {
  const etcd = {
    // The endpoints of etcd and, for TLS, the paths of its files in the containers, such as /calico-secrets/etcd-ca.
    etcd_endpoints: "http://<ETCD_IP>:<ETCD_PORT>",
    etcd_ca: "",
    etcd_cert: "",
    etcd_key: "",
  };
  return {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "calico-config", namespace: NAMESPACE },
    data: {
      ...(datastore === "etcdv3" ? etcd : { typha_service_name: typhaService }),
      calico_backend: backend,
      veth_mtu: "0",
      cni_network_config: networkConfig(datastore),
    },
  };
}

/** install-cni replaces the placeholders on each node. */
function networkConfig(datastore: "kubernetes" | "etcdv3"): string {
  const etcd = {
    etcd_endpoints: "__ETCD_ENDPOINTS__",
    etcd_key_file: "__ETCD_KEY_FILE__",
    etcd_cert_file: "__ETCD_CERT_FILE__",
    etcd_ca_cert_file: "__ETCD_CA_CERT_FILE__",
  };
  const config = {
    name: "k8s-pod-network",
    cniVersion: "0.3.1",
    plugins: [
      {
        type: "calico",
        log_level: "info",
        log_file_path: "/var/log/calico/cni/cni.log",
        ...(datastore === "etcdv3" ? etcd : { datastore_type: "kubernetes" }),
        nodename: "__KUBERNETES_NODE_NAME__",
        mtu: "__CNI_MTU__",
        ipam: { type: "calico-ipam" },
        policy: { type: "k8s" },
        kubernetes: { kubeconfig: "__KUBECONFIG_FILEPATH__" },
      },
      { type: "portmap", snat: true, capabilities: { portMappings: true } },
    ],
  };
  return JSON.stringify(config, null, 2).replace('"__CNI_MTU__"', "__CNI_MTU__"); // a number
}
