// Declares the environment variables of calico-node, besides those of the datastore (DATASTORE_VARIABLES) and of Felix (FELIX_<Name>).
import type { EnvironmentTable } from "../lib/environment-table.ts";

const poolVariables = (version: 4 | 6): EnvironmentTable => {
  const prefix = `CALICO_IPV${version}POOL_`;
  return {
    [`${prefix}CIDR`]: {
      meaning: `IPv${version} pool that a new cluster gets, or \`none\`. If unset: the pod subnet of kubeadm, otherwise ${version === 4 ? "a private range in which the host has no address" : "a random unique local prefix"}.`,
    },
    [`${prefix}BLOCK_SIZE`]: { meaning: "Prefix length of the pool's blocks.", default: version === 4 ? "26" : "122" },
    ...(version === 6
      ? {}
      : {
          [`${prefix}IPIP`]: {
            meaning: "IPIP between addresses of the pool: `Never`, `Always` or `CrossSubnet`.",
            default: "Never",
          },
        }),
    [`${prefix}VXLAN`]: {
      meaning: "VXLAN between addresses of the pool: `Never`, `Always` or `CrossSubnet`.",
      default: "Never",
    },
    [`${prefix}NAT_OUTGOING`]: {
      meaning: "Whether traffic from the pool to addresses outside all pools gets the node's address.",
      default: version === 4 ? "true" : "false",
    },
    [`${prefix}NODE_SELECTOR`]: { meaning: "Nodes that use the pool.", default: "all()" },
    [`${prefix}DISABLE_BGP_EXPORT`]: { meaning: "`true`: BGP does not announce the pool's routes.", default: "false" },
  };
};

const METHODS =
  "`first-found`, `interface=REGEX`, `skip-interface=REGEX`, `cidr=CIDR`, `can-reach=HOST` or `kubernetes-internal-ip`";

export const NODE_VARIABLES: EnvironmentTable = {
  NODENAME: {
    meaning:
      "Name of the node. If unset: the name in CALICO_NODENAME_FILE, otherwise HOSTNAME, otherwise the host name of the operating system.",
  },
  HOSTNAME: { meaning: "Name of the node, if NODENAME is unset." },
  CALICO_NODENAME_FILE: {
    meaning: "File to which the name of the node is written.",
    default: "/var/lib/calico/nodename",
  },
  CALICO_K8S_NODE_REF: { meaning: "Name of the Kubernetes node.", default: "the name of the node" },
  KUBERNETES_NODE_NAME: {
    meaning: "Node for which the token of the CNI plugin is requested, if CALICO_K8S_NODE_REF is unset.",
  },
  IP: {
    meaning:
      "IPv4 address for BGP: an address, `autodetect`, or `none`. If unset, the stored address is kept; a node without one is autodetected.",
  },
  IP6: { meaning: "IPv6 address for BGP: an address, `autodetect`, or `none`. If unset, the stored address is kept." },
  IP_AUTODETECTION_METHOD: { meaning: `How the IPv4 address is found: ${METHODS}.`, default: "first-found" },
  IP6_AUTODETECTION_METHOD: { meaning: `How the IPv6 address is found: ${METHODS}.`, default: "first-found" },
  AUTODETECT_POLL_INTERVAL: { meaning: "Interval at which addresses are autodetected again.", default: "60s" },
  DISABLE_NODE_IP_CHECK: {
    meaning: "`true`: do not check whether another node has the same address.",
    default: "false",
  },
  AS: { meaning: "AS number of the node. If unset, the stored number is kept." },
  CALICO_ROUTER_ID: {
    meaning: "BGP router ID, or `hash` to derive it from the node's name. If unset: the IPv4 address.",
  },
  CALICO_NETWORKING_BACKEND: { meaning: "How routes are exchanged: `bird`, `vxlan` or `none`.", default: "bird" },
  CALICO_NETWORKING: {
    meaning: "Older form of CALICO_NETWORKING_BACKEND: `false` means `none`, any other value `bird`.",
  },
  CALICO_ADVERTISE_CLUSTER_IPS: { meaning: "Cluster IP ranges that BGP announces, separated by commas." },
  CALICO_BGP_METRICS_PORT: { meaning: "Port for BGP metrics; 0 disables them.", default: "0" },
  CALICO_BGP_METRICS_HOST: { meaning: "Address for BGP metrics.", default: "all addresses" },
  CALICO_BIRD_READY: {
    meaning: "`peers`: the readiness probe also fails if sessions are not established, as in Calico.",
  },
  BGP_LOGSEVERITYSCREEN: { meaning: "Log severity of the BGP service.", default: "INFO" },
  NO_DEFAULT_POOLS: { meaning: "`true`: create no pools.", default: "false" },
  ...poolVariables(4),
  ...poolVariables(6),
  FELIX_IPV6SUPPORT: { meaning: "`false`: create no IPv6 pool. Also a setting of Felix.", default: "true" },
  CLUSTER_TYPE: { meaning: "Words for `clusterType` of ClusterInformation, separated by commas." },
  WAIT_FOR_DATASTORE: { meaning: "`true`: wait until the datastore is reachable.", default: "false" },
  CALICO_DISABLE_FELIX: { meaning: "If not empty, Felix is not started." },
  CALICO_DISABLE_FILE_LOGGING: {
    meaning: "`true`: write logs only to standard output, not to `/var/log/calico`.",
    default: "false",
  },
  CALICO_STARTUP_LOGLEVEL: { meaning: "Log severity of the parts other than Felix and BGP.", default: "INFO" },
  CALICO_MANAGE_CNI: { meaning: "`false`: do not renew the credentials of the CNI plugin.", default: "true" },
  CALICO_CNI_SERVICE_ACCOUNT: { meaning: "Service account of the CNI plugin.", default: "calico-cni-plugin" },
  CNI_TOKEN_REFRESH_INTERVAL: {
    meaning:
      "Interval at which the token of the CNI plugin is renewed, in seconds. If unset: before the token expires.",
  },
  CALICO_SHUTDOWN_TIMESTAMP_FILE: {
    meaning: "File with the time of the last shutdown.",
    default: "/var/lib/calico/shutdownTS",
  },
  NODE_USER_ID: { meaning: "User that owns the folders that `-hostpath-init` creates.", default: "1000" },
  NAMESPACE: { meaning: "Namespace of the Secrets with BGP passwords.", default: "kube-system" },
  FELIX_HEALTHENABLED: {
    meaning: "`true`: the network is reported available when Felix is ready. Also a setting of Felix.",
  },
  FELIX_HEALTHHOST: {
    meaning: "Host of Felix's health page, for probes. Also a setting of Felix.",
    default: "localhost",
  },
  FELIX_HEALTHPORT: { meaning: "Port of Felix's health page, for probes. Also a setting of Felix.", default: "9099" },
  ETCD_AUTHORITY: { meaning: "Host and port of etcd; passed to Felix as EtcdAddr." },
  ETCD_SCHEME: { meaning: "`http` or `https`; passed to Felix as EtcdScheme." },
  CNI_CONF_NAME: { meaning: "Name of the CNI configuration that `-uninstall` removes.", default: "10-calico.conflist" },
  KUBERNETES_SERVICE_IPS_PORTS: {
    meaning:
      "Not supported: `-init` fails if this and KUBERNETES_APISERVER_ENDPOINTS are set, because there is no eBPF dataplane.",
  },
  KUBERNETES_APISERVER_ENDPOINTS: { meaning: "See KUBERNETES_SERVICE_IPS_PORTS." },
};
