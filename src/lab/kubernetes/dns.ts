// Installs cluster DNS: one CoreDNS that serves the names of services and pods. The lab has no connection to other
// networks, so CoreDNS answers REFUSED for names outside the cluster instead of forwarding the request.
import type { KubernetesCluster } from "./cluster.ts";
import { CLUSTER_DOMAIN, DNS_SERVICE_ADDRESS } from "./control-plane.ts";
import { COREDNS_IMAGE } from "./image-names.ts";
import { areInstalled, listOf } from "./network.ts";

const WAIT_MS = 120_000;
const name = "coredns";
const namespace = "kube-system";
/** The names of Service and label are those of kubeadm, which other manifests and policies refer to. */
const SERVICE = "kube-dns";
const labels = { "k8s-app": SERVICE };
const WORKLOAD = `deployment/${name}`;

const ZONES = `${CLUSTER_DOMAIN} in-addr.arpa ip6.arpa`;
const COREFILE = `${ZONES} {
    errors
    health
    ready
    kubernetes ${ZONES} {
        pods insecure
        ttl 30
    }
    cache 30
    reload
    loadbalance
}
`;

/** Installs cluster DNS unless it exists, and waits until it is ready. */
export async function installDns(cluster: KubernetesCluster): Promise<void> {
  if (!areInstalled(cluster, [WORKLOAD])) cluster.kubectl(["apply", "--filename=-"], listOf(dnsObjects()));
  await cluster.rolledOut(WORKLOAD, WAIT_MS);
}

function dnsObjects(): readonly object[] {
  const metadata = { name, namespace };
  const role = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:coredns" };
  const port = (title: string, protocol: string) => ({ name: title, port: 53, protocol });
  const probe = (path: string, number: number) => ({ httpGet: { path, port: number }, periodSeconds: 2 });
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: role.name },
      rules: [
        { apiGroups: [""], resources: ["services", "pods", "namespaces"], verbs: ["list", "watch"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: role.name },
      roleRef: role,
      subjects: [{ kind: "ServiceAccount", ...metadata }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata, data: { Corefile: COREFILE } },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: SERVICE, namespace, labels },
      spec: {
        selector: labels,
        clusterIP: DNS_SERVICE_ADDRESS,
        ports: [port("dns", "UDP"), port("dns-tcp", "TCP")],
      },
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace, labels },
      spec: {
        replicas: 1,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: name,
            priorityClassName: "system-cluster-critical",
            dnsPolicy: "Default",
            terminationGracePeriodSeconds: 0,
            containers: [
              {
                name,
                image: COREDNS_IMAGE,
                imagePullPolicy: "Never",
                args: ["-conf", "/etc/coredns/Corefile"],
                livenessProbe: { ...probe("/health", 8080), failureThreshold: 30 },
                readinessProbe: probe("/ready", 8181),
                volumeMounts: [{ name: "config", mountPath: "/etc/coredns", readOnly: true }],
              },
            ],
            volumes: [{ name: "config", configMap: { name } }],
          },
        },
      },
    },
  ];
}
