// Declares the environment variables of the CNI plugins and of their installation.
import type { EnvironmentTable } from "../lib/environment-table.ts";

/** Set by the container runtime: https://www.cni.dev/docs/spec/#parameters */
export const PLUGIN_VARIABLES: EnvironmentTable = {
  CNI_COMMAND: { meaning: "Operation: `ADD`, `DEL`, `CHECK`, `GC`, `STATUS` or `VERSION`." },
  CNI_CONTAINERID: { meaning: "ID of the container." },
  CNI_NETNS: { meaning: "Path of the container's network namespace." },
  CNI_IFNAME: { meaning: "Name of the interface inside the container." },
  CNI_ARGS: { meaning: "Pairs such as `K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop`." },
  CNI_PATH: { meaning: "Folders of plugins, separated by colons." },
  CNI_NETNS_OVERRIDE: {
    meaning: "`true`: do not check that the network namespace is not that of the host.",
    default: "false",
  },
  FELIX_INTERFACEPREFIX: { meaning: "Prefix of the interfaces on the host; of a list, the first.", default: "cali" },
  CALICO_CNI_TIMES: { meaning: "File to which the duration of each step is appended, for measurements." },
  KUBERNETES_NODE_NAME: { meaning: "Node whose addresses `calico-ipam -upgrade` moves." },
};

export const INSTALL_VARIABLES: EnvironmentTable = {
  CNI_NET_DIR: { meaning: "Folder of the CNI configuration, as a path on the host.", default: "/etc/cni/net.d" },
  CNI_CONF_NAME: { meaning: "Name of the configuration file.", default: "10-calico.conflist" },
  CNI_OLD_CONF_NAME: {
    meaning: "Configuration file that is deleted if CNI_CONF_NAME is another.",
    default: "10-calico.conflist",
  },
  CNI_NETWORK_CONFIG: { meaning: "The configuration. `__NAME__` stands for the value of a variable." },
  CNI_NETWORK_CONFIG_FILE: { meaning: "File with the configuration. Takes precedence over CNI_NETWORK_CONFIG." },
  UPDATE_CNI_BINARIES: { meaning: "`false`: do not replace programs that exist.", default: "true" },
  SKIP_CNI_BINARIES: { meaning: "Plugins that are not installed, separated by commas." },
  SKIP_TLS_VERIFY: {
    meaning: "`true`: the plugin does not verify the certificate of the API server.",
    default: "false",
  },
  TLS_ASSETS_DIR: {
    meaning: "Folder with the files `etcd-ca`, `etcd-cert` and `etcd-key`.",
    default: "/calico-secrets",
  },
  SLEEP: {
    meaning: "`false`: exit after the installation. Otherwise the program continues and renews credentials.",
    default: "true",
  },
  KUBERNETES_SERVICE_PROTOCOL: { meaning: "`http` or `https`.", default: "https" },
  KUBERNETES_SERVICE_HOST: { meaning: "Address of the API server." },
  KUBERNETES_SERVICE_PORT: { meaning: "Port of the API server." },
  KUBERNETES_NODE_NAME: { meaning: "Placeholder: name of the node.", default: "HOSTNAME" },
  HOSTNAME: { meaning: "Name of the node, if KUBERNETES_NODE_NAME is unset." },
  LOG_LEVEL: { meaning: "Placeholder: log severity of the plugin.", default: "info" },
  LOG_FILE_PATH: { meaning: "Placeholder: log file of the plugin.", default: "/var/log/calico/cni/cni.log" },
  LOG_FILE_MAX_SIZE: { meaning: "Placeholder: size in MB at which the log file is rotated.", default: "100" },
  LOG_FILE_MAX_AGE: { meaning: "Placeholder: days after which old log files are deleted.", default: "30" },
  LOG_FILE_MAX_COUNT: { meaning: "Placeholder: number of old log files.", default: "10" },
  DATASTORE_TYPE: { meaning: "Placeholder: datastore of the plugin.", default: "kubernetes" },
  CNI_MTU: { meaning: "Placeholder: MTU of pods. Felix's MTU file takes precedence.", default: "1500" },
  CALICO_API_GROUP: { meaning: "Placeholder: API group of the resources.", default: "crd.projectcalico.org/v1" },
  ETCD_ENDPOINTS: { meaning: "Placeholder: URLs of the etcd members." },
  ETCD_DISCOVERY_SRV: { meaning: "Placeholder: domain whose SRV records name the etcd members." },
  REQUIRE_MTU_FILE: {
    meaning: "Placeholder: `true`: the plugin fails if Felix has not written its MTU file.",
    default: "false",
  },
};
