// The Deployment of the controllers: one replica, replaced rather than doubled.
import { IMAGE } from "./image.ts";
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
/** User and group of the controllers, who need no rights on the node. */
const GROUP = 999;

export function kubeControllers(datastore: "kubernetes" | "etcdv3"): readonly KubernetesObject[] {
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
            ],
            serviceAccountName: name,
            priorityClassName: "system-cluster-critical",
            // etcd may be reachable from the nodes only.
            ...(withEtcd ? { hostNetwork: true } : {}),
            // A secret's files belong to root and to this group: who runs as neither could not read its certificates.
            securityContext: { ...(withEtcd ? { fsGroup: GROUP } : {}), seccompProfile: { type: "RuntimeDefault" } },
            containers: [container(withEtcd)],
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

function container(withEtcd: boolean): Container {
  const probe = (flag: string) => ({ exec: { command: ["/usr/bin/check-status", flag] } });
  return {
    name,
    image: IMAGE,
    imagePullPolicy: "IfNotPresent",
    command: ["/usr/bin/calico-kube-controllers"],
    envFrom: API_ADDRESS,
    env: withEtcd
      ? [...ETCD, value("ENABLED_CONTROLLERS", "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer")]
      : [value("DATASTORE_TYPE", "kubernetes"), value("ENABLED_CONTROLLERS", "node,loadbalancer")],
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
  };
}
