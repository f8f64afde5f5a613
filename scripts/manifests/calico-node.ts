// Builds the DaemonSet of calico-node: two init containers prepare the host, then the agent runs.
import { TYPHA_CLIENT } from "./certificates.ts";
import { FROM_IMAGE } from "./image.ts";
import {
  API_ADDRESS,
  type Container,
  EVERYWHERE,
  ETCD,
  fromConfig,
  fromField,
  hostRoot,
  type KubernetesObject,
  type Mount,
  NAMESPACE,
  SECCOMP,
  type Variable,
  type Volume,
  value,
} from "./objects.ts";

export interface NodeOptions {
  readonly datastore: "kubernetes" | "etcdv3";
  readonly backend: "bird" | "vxlan";
  readonly pool: "ipip" | "vxlan";
  readonly typha: boolean;
}

const labels = { "k8s-app": "calico-node" };
const INIT_RESOURCES = { requests: { cpu: "10m", memory: "64Mi" } };

export function calicoNode(options: NodeOptions): KubernetesObject {
  const withEtcd = options.datastore === "etcdv3";
  return {
    apiVersion: "apps/v1",
    kind: "DaemonSet",
    metadata: { name: "calico-node", namespace: NAMESPACE, labels },
    spec: {
      selector: { matchLabels: labels },
      updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: 1 } },
      template: {
        metadata: { labels },
        spec: {
          ...EVERYWHERE,
          hostNetwork: true,
          serviceAccountName: "calico-node",
          // The next agent uses the kernel state that this one leaves, so there is no shutdown to wait for.
          terminationGracePeriodSeconds: 0,
          priorityClassName: "system-node-critical",
          securityContext: SECCOMP,
          initContainers: [...(withEtcd ? [] : [upgradeIpam()]), installCni(withEtcd)],
          containers: [agent(options)],
          volumes: [...volumes(withEtcd), ...(options.typha ? TYPHA_CLIENT.volumes : [])],
        },
      },
    },
  };
}

/** Imports addresses that host-local assigned before. */
function upgradeIpam(): Container {
  return {
    name: "upgrade-ipam",
    ...FROM_IMAGE,
    command: ["/opt/cni/bin/calico-ipam", "-upgrade"],
    envFrom: API_ADDRESS,
    env: [
      value("DATASTORE_TYPE", "kubernetes"),
      fromField("KUBERNETES_NODE_NAME", "spec.nodeName"),
      fromConfig("CALICO_NETWORKING_BACKEND", "calico_backend"),
    ],
    volumeMounts: [
      { name: "host-local-net-dir", mountPath: "/var/lib/cni/networks" },
      { name: "cni-bin-dir", mountPath: "/host/opt/cni/bin" },
    ],
    securityContext: hostRoot(),
    resources: INIT_RESOURCES,
  };
}

function installCni(withEtcd: boolean): Container {
  return {
    name: "install-cni",
    ...FROM_IMAGE,
    command: ["/opt/cni/bin/install"],
    envFrom: API_ADDRESS,
    env: [
      value("CNI_CONF_NAME", "10-calico.conflist"),
      fromConfig("CNI_NETWORK_CONFIG", "cni_network_config"),
      ...(withEtcd ? [fromConfig("ETCD_ENDPOINTS", "etcd_endpoints")] : []),
      fromField("KUBERNETES_NODE_NAME", "spec.nodeName"),
      fromConfig("CNI_MTU", "veth_mtu"),
      value("SLEEP", "false"),
    ],
    volumeMounts: [
      { name: "cni-bin-dir", mountPath: "/host/opt/cni/bin" },
      { name: "cni-net-dir", mountPath: "/host/etc/cni/net.d" },
      ...(withEtcd ? [SECRETS] : []),
    ],
    securityContext: hostRoot(),
    resources: INIT_RESOURCES,
  };
}

function agent(options: NodeOptions): Container {
  const bird = options.backend === "bird";
  const withEtcd = options.datastore === "etcdv3";
  return {
    name: "calico-node",
    ...FROM_IMAGE,
    command: ["/usr/bin/calico-node"],
    envFrom: API_ADDRESS,
    env: variables(options),
    // calico-node writes to /proc/sys, mounts file systems, and enters the network namespaces of pods.
    securityContext: { privileged: true },
    // 180 to 201 MB for 20 pods and 40 policies (docs/performance.md, memory under churn).
    resources: { requests: { cpu: "250m", memory: "256Mi" } },
    lifecycle: { preStop: { exec: { command: ["/usr/bin/calico-node", "-shutdown"] } } },
    livenessProbe: {
      exec: { command: ["/usr/bin/calico-node", "-felix-live", ...(bird ? ["-bird-live"] : [])] },
      periodSeconds: 10,
      initialDelaySeconds: 10,
      failureThreshold: 6,
      timeoutSeconds: 10,
    },
    readinessProbe: {
      exec: { command: ["/usr/bin/calico-node", "-felix-ready", ...(bird ? ["-bird-ready"] : [])] },
      periodSeconds: 10,
      timeoutSeconds: 10,
    },
    volumeMounts: [
      { name: "cni-net-dir", mountPath: "/host/etc/cni/net.d" },
      { name: "lib-modules", mountPath: "/lib/modules", readOnly: true },
      { name: "xtables-lock", mountPath: "/run/xtables.lock" },
      { name: "var-run-calico", mountPath: "/var/run/calico" },
      { name: "var-lib-calico", mountPath: "/var/lib/calico" },
      { name: "cni-log-dir", mountPath: "/var/log/calico/cni" },
      ...(withEtcd ? [SECRETS] : []),
      ...(options.typha ? TYPHA_CLIENT.volumeMounts : []),
    ],
  };
}

/** The cluster type, which `calicoctl version` prints, and by which Felix recognises platforms. */
export const clusterType = (backend: NodeOptions["backend"]): string => (backend === "bird" ? "k8s,bgp" : "k8s");

function variables({ datastore, backend, pool, typha }: NodeOptions): readonly Variable[] {
  const stored =
    datastore === "etcdv3"
      ? [...ETCD, fromField("CALICO_K8S_NODE_REF", "spec.nodeName")]
      : [value("DATASTORE_TYPE", "kubernetes")];
  return [
    ...stored,
    ...(typha ? [fromConfig("FELIX_TYPHAK8SSERVICENAME", "typha_service_name"), ...TYPHA_CLIENT.env] : []),
    value("WAIT_FOR_DATASTORE", "true"),
    fromField("NODENAME", "spec.nodeName"),
    fromConfig("CALICO_NETWORKING_BACKEND", "calico_backend"),
    value("CLUSTER_TYPE", clusterType(backend)),
    value("IP", "autodetect"),
    value("CALICO_IPV4POOL_IPIP", pool === "ipip" ? "Always" : "Never"),
    value("CALICO_IPV4POOL_VXLAN", pool === "vxlan" ? "CrossSubnet" : "Never"),
    value("CALICO_IPV6POOL_VXLAN", pool === "vxlan" ? "CrossSubnet" : "Never"),
    fromConfig("FELIX_IPINIPMTU", "veth_mtu"),
    fromConfig("FELIX_VXLANMTU", "veth_mtu"),
    fromConfig("FELIX_WIREGUARDMTU", "veth_mtu"),
    // Pod addresses: set CALICO_IPV4POOL_CIDR for another range than that of kubeadm, or 192.168.0.0/16.
    value("CALICO_DISABLE_FILE_LOGGING", "true"),
    value("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT"),
    // Policy also applies to the IPv6 addresses that the kernel assigns to interfaces; pods get only IPv4 addresses.
    value("FELIX_IPV6SUPPORT", "true"),
    value("CALICO_IPV6POOL_CIDR", "none"),
    value("FELIX_HEALTHENABLED", "true"),
  ];
}

const SECRETS: Mount = { name: "etcd-certs", mountPath: "/calico-secrets", readOnly: true };

function volumes(withEtcd: boolean): readonly Volume[] {
  const folder = (name: string, path: string): Volume => ({ name, hostPath: { path, type: "DirectoryOrCreate" } });
  return [
    { name: "lib-modules", hostPath: { path: "/lib/modules" } },
    { name: "xtables-lock", hostPath: { path: "/run/xtables.lock", type: "FileOrCreate" } },
    folder("var-run-calico", "/var/run/calico"),
    folder("var-lib-calico", "/var/lib/calico"),
    folder("cni-bin-dir", "/opt/cni/bin"),
    folder("cni-net-dir", "/etc/cni/net.d"),
    folder("cni-log-dir", "/var/log/calico/cni"),
    ...(withEtcd
      ? [{ name: "etcd-certs", secret: { secretName: "calico-etcd-secrets", defaultMode: 0o400 } }]
      : [folder("host-local-net-dir", "/var/lib/cni/networks")]),
  ];
}
