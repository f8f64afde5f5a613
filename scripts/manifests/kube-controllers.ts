// Builds the Deployment of kube-controllers. It has one replica; an update stops the old pod before it starts the new one.
import { FROM_IMAGE } from "./image.ts";
import {
  API_ADDRESS,
  type Container,
  disruptionBudget,
  ETCD,
  type KubernetesObject,
  NAMESPACE,
  value,
} from "./objects.ts";

const name = "calico-kube-controllers";
const labels = { "k8s-app": name };
/** User and group of the controllers, which need no privileges on the node. */
const GROUP = 999;

/** Taints of a node whose network is not set up yet. */
const NO_NETWORK = [
  { key: "node.kubernetes.io/not-ready", effect: "NoSchedule" },
  { key: "node.kubernetes.io/network-unavailable", effect: "NoSchedule" },
].map((taint) => ({ ...taint, operator: "Exists" }));

export interface ControllerOptions {
  readonly datastore: "kubernetes" | "etcdv3";
  /** Whether to create certificates for Typha. */
  readonly typha: boolean;
  /** The cluster type. With etcd, the nodes record it. */
  readonly clusterType?: string;
}

export function kubeControllers({ datastore, typha, clusterType }: ControllerOptions): readonly KubernetesObject[] {
  const withEtcd = datastore === "etcdv3";
  return [
    disruptionBudget(name, labels),
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace: NAMESPACE, labels },
      spec: {
        replicas: 1,
        selector: { matchLabels: labels },
        strategy: { type: "Recreate" },
        template: {
          metadata: { name, namespace: NAMESPACE, labels },
          spec: {
            nodeSelector: { "kubernetes.io/os": "linux" },
            tolerations: [
              { key: "CriticalAddonsOnly", operator: "Exists" },
              { key: "node-role.kubernetes.io/master", effect: "NoSchedule" },
              { key: "node-role.kubernetes.io/control-plane", effect: "NoSchedule" },
              ...(typha ? NO_NETWORK : []),
            ],
            serviceAccountName: name,
            priorityClassName: "system-cluster-critical",
            // etcd may be reachable only from the nodes. With Typha, calico-node waits for the certificates that are
            // created here, and no other pod gets a network before calico-node runs.
            ...(withEtcd || typha ? { hostNetwork: true } : {}),
            // The files of a Secret belong to root and to this group, so that the controllers can read their certificates.
            securityContext: { ...(withEtcd ? { fsGroup: GROUP } : {}), seccompProfile: { type: "RuntimeDefault" } },
            containers: [container(withEtcd, typha, clusterType)],
            volumes: [
              { name: "status", emptyDir: {} },
              ...(withEtcd
                ? [{ name: "etcd-certs", secret: { secretName: "calico-etcd-secrets", defaultMode: 0o440 } }]
                : []),
            ],
          },
        },
      },
    },
  ];
}

function container(withEtcd: boolean, typha: boolean, clusterType: string | undefined): Container {
  const probe = (flag: string) => ({ exec: { command: ["/usr/bin/check-status", flag] } });
  return {
    name,
    ...FROM_IMAGE,
    command: ["/usr/bin/calico-kube-controllers"],
    envFrom: API_ADDRESS,
    env: withEtcd
      ? [...ETCD, value("ENABLED_CONTROLLERS", "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer")]
      : [
          value("DATASTORE_TYPE", "kubernetes"),
          value("ENABLED_CONTROLLERS", "node,loadbalancer"),
          ...(typha ? [value("CALICO_CERTIFICATES", "typha")] : []),
          ...(clusterType === undefined ? [] : [value("CLUSTER_TYPE", clusterType)]),
        ],
    ports: [{ containerPort: 9094, name: "metrics", protocol: "TCP" }],
    livenessProbe: {
      ...probe("-l"),
      periodSeconds: 10,
      initialDelaySeconds: 10,
      failureThreshold: 6,
      timeoutSeconds: 10,
    },
    readinessProbe: { ...probe("-r"), periodSeconds: 10, timeoutSeconds: 10 },
    volumeMounts: [
      { name: "status", mountPath: "/status" },
      ...(withEtcd ? [{ name: "etcd-certs", mountPath: "/calico-secrets", readOnly: true }] : []),
    ],
    securityContext: {
      runAsNonRoot: true,
      runAsUser: GROUP,
      runAsGroup: GROUP,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    },
    // 41 MB in a small cluster, 217 MB and more with 50,000 pods on 500 nodes (docs/performance.md).
    resources: { requests: { cpu: "50m", memory: "64Mi" } },
  };
}
