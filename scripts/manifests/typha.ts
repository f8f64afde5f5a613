// Builds the Deployment of Typha, which watches the API server on behalf of many nodes.
import { TYPHA_SERVER } from "./certificates.ts";
import { FROM_IMAGE } from "./image.ts";
import {
  API_ADDRESS,
  type Container,
  disruptionBudget,
  EVERYWHERE,
  type KubernetesObject,
  NAMESPACE,
  value,
  UNPRIVILEGED,
} from "./objects.ts";

const name = "calico-typha";
const labels = { "k8s-app": name };
const PORT = 5473;
const HEALTH_PORT = 9098;

export function typha(): readonly KubernetesObject[] {
  return [
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace: NAMESPACE, labels },
      spec: { ports: [{ port: PORT, protocol: "TCP", targetPort: name, name }], selector: labels },
    },
    disruptionBudget(name, labels),
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace: NAMESPACE, labels },
      spec: {
        // Use one replica for each 200 nodes, and at least three in production.
        replicas: 1,
        revisionHistoryLimit: 2,
        selector: { matchLabels: labels },
        // A new pod is ready before an old one disconnects its clients.
        strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: "100%", maxUnavailable: 1 } },
        template: {
          metadata: {
            labels,
            annotations: { "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" },
          },
          spec: {
            ...EVERYWHERE,
            hostNetwork: true,
            // Longer than Typha needs to disconnect all clients gradually.
            terminationGracePeriodSeconds: 300,
            serviceAccountName: name,
            priorityClassName: "system-cluster-critical",
            securityContext: { fsGroup: 65534, seccompProfile: { type: "RuntimeDefault" } },
            containers: [container()],
            volumes: TYPHA_SERVER.volumes,
          },
        },
      },
    },
  ];
}

function container(): Container {
  const probe = (path: string, periodSeconds: number) => ({
    httpGet: { path, port: HEALTH_PORT, host: "localhost" },
    periodSeconds,
    timeoutSeconds: 10,
  });
  return {
    name,
    ...FROM_IMAGE,
    command: ["/usr/bin/calico-typha"],
    ports: [{ containerPort: PORT, name, protocol: "TCP" }],
    envFrom: API_ADDRESS,
    env: [
      value("TYPHA_LOGSEVERITYSCREEN", "info"),
      value("TYPHA_LOGFILEPATH", "none"),
      value("TYPHA_LOGSEVERITYSYS", "none"),
      value("TYPHA_CONNECTIONREBALANCINGMODE", "kubernetes"),
      value("TYPHA_DATASTORETYPE", "kubernetes"),
      value("TYPHA_HEALTHENABLED", "true"),
      ...TYPHA_SERVER.env,
    ],
    livenessProbe: { ...probe("/liveness", 30), initialDelaySeconds: 30 },
    readinessProbe: probe("/readiness", 10),
    volumeMounts: TYPHA_SERVER.volumeMounts,
    securityContext: UNPRIVILEGED,
    // 106 MB with 500 clients (docs/performance.md).
    resources: { requests: { cpu: "100m", memory: "128Mi" } },
  };
}
