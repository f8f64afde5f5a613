// Builds the DaemonSet that cleans up the nodes after the rest has been deleted. A node is clean when its pod is ready; then
// the DaemonSet can be deleted too.
import { FROM_IMAGE } from "./image.ts";
import {
  EVERYWHERE,
  hostRoot,
  type KubernetesObject,
  NAMESPACE,
  type Mount,
  SECCOMP,
  UNPRIVILEGED,
  type Volume,
} from "./objects.ts";

const name = "calico-uninstall";
const labels = { "k8s-app": name };

export function uninstall(): readonly KubernetesObject[] {
  const mounts: readonly (Mount & { readonly path: string; readonly type?: string })[] = [
    { name: "xtables-lock", mountPath: "/run/xtables.lock", path: "/run/xtables.lock", type: "FileOrCreate" },
    { name: "var-run", mountPath: "/host/var/run", path: "/var/run" },
    { name: "var-lib", mountPath: "/host/var/lib", path: "/var/lib" },
    { name: "cni-bin-dir", mountPath: "/host/opt/cni/bin", path: "/opt/cni/bin", type: "DirectoryOrCreate" },
    { name: "cni-net-dir", mountPath: "/host/etc/cni/net.d", path: "/etc/cni/net.d", type: "DirectoryOrCreate" },
  ];
  const volumes: readonly Volume[] = mounts.map(({ name: volume, path, type }) => ({
    name: volume,
    hostPath: { path, ...(type === undefined ? {} : { type }) },
  }));
  return [
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name, namespace: NAMESPACE, labels },
      spec: {
        selector: { matchLabels: labels },
        updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "100%" } },
        template: {
          metadata: { labels },
          spec: {
            ...EVERYWHERE,
            hostNetwork: true,
            automountServiceAccountToken: false,
            terminationGracePeriodSeconds: 0,
            priorityClassName: "system-node-critical",
            securityContext: SECCOMP,
            initContainers: [
              {
                ...FROM_IMAGE,
                name: "uninstall",
                command: ["/usr/bin/calico-node", "-uninstall"],
                securityContext: hostRoot(["NET_ADMIN", "NET_RAW", "DAC_OVERRIDE"]),
                resources: { requests: { cpu: "10m", memory: "64Mi" } },
                volumeMounts: mounts.map(({ name: volume, mountPath }) => ({ name: volume, mountPath })),
              },
            ],
            // The work is done. The pod keeps running, so that its readiness can be checked.
            containers: [
              {
                ...FROM_IMAGE,
                name: "done",
                command: ["/usr/bin/sleep", "infinity"],
                securityContext: UNPRIVILEGED,
                resources: { requests: { cpu: "1m", memory: "4Mi" } },
              },
            ],
            volumes,
          },
        },
      },
    },
  ];
}
