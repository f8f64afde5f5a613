// Defines types and common parts of the Kubernetes objects in the manifests, limited to the fields that they use.

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

export type Verb = "get" | "list" | "watch" | "create" | "update" | "patch" | "delete";

export interface PolicyRule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
  readonly verbs: readonly Verb[];
}

export interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?:
    | { readonly fieldRef: { readonly fieldPath: string } }
    | { readonly configMapKeyRef: { readonly name: string; readonly key: string } };
}

export interface Probe {
  readonly exec?: { readonly command: readonly string[] };
  readonly httpGet?: { readonly path: string; readonly port: number | string; readonly host?: string };
  readonly initialDelaySeconds?: number;
  readonly periodSeconds?: number;
  readonly failureThreshold?: number;
  readonly timeoutSeconds?: number;
}

export interface Mount {
  readonly name: string;
  readonly mountPath: string;
  readonly readOnly?: boolean;
}

export interface Volume {
  readonly name: string;
  readonly hostPath?: { readonly path: string; readonly type?: string };
  readonly secret?: { readonly secretName: string; readonly defaultMode: number };
  readonly configMap?: { readonly name: string };
  readonly emptyDir?: object;
}

/** No limits are set: a container that exceeds a limit is throttled or killed, which affects the network of its node. */
export interface Requests {
  readonly cpu: string;
  readonly memory: string;
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly imagePullPolicy: "Never";
  readonly command?: readonly string[];
  readonly ports?: readonly object[];
  readonly envFrom?: readonly object[];
  readonly env?: readonly Variable[];
  readonly securityContext: object;
  readonly resources: { readonly requests: Requests };
  readonly lifecycle?: object;
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly volumeMounts?: readonly Mount[];
}

export const NAMESPACE = "kube-system";

export const value = (name: string, text: string): Variable => ({ name, value: text });
export const fromField = (name: string, fieldPath: string): Variable => ({
  name,
  valueFrom: { fieldRef: { fieldPath } },
});
export const fromConfig = (name: string, key: string): Variable => ({
  name,
  valueFrom: { configMapKeyRef: { name: "calico-config", key } },
});

/** A ConfigMap in which an operator can set the address of the API server, if the service address does not work yet. */
export const API_ADDRESS = [{ configMapRef: { name: "kubernetes-services-endpoint", optional: true } }] as const;

/** Runs on every Linux node, regardless of its taints. */
export const EVERYWHERE = {
  nodeSelector: { "kubernetes.io/os": "linux" },
  tolerations: [
    { effect: "NoSchedule", operator: "Exists" },
    { key: "CriticalAddonsOnly", operator: "Exists" },
    { effect: "NoExecute", operator: "Exists" },
  ],
} as const;

/** At most one pod is unavailable at a time. */
export const disruptionBudget = (name: string, labels: Readonly<Record<string, string>>): KubernetesObject => ({
  apiVersion: "policy/v1",
  kind: "PodDisruptionBudget",
  metadata: { name, namespace: NAMESPACE, labels },
  spec: { maxUnavailable: 1, selector: { matchLabels: labels } },
});

/** The environment variables for etcd. */
export const ETCD: readonly Variable[] = [
  value("DATASTORE_TYPE", "etcdv3"),
  fromConfig("ETCD_ENDPOINTS", "etcd_endpoints"),
  fromConfig("ETCD_CA_CERT_FILE", "etcd_ca"),
  fromConfig("ETCD_KEY_FILE", "etcd_key"),
  fromConfig("ETCD_CERT_FILE", "etcd_cert"),
];

/** System calls that the container runtime allows by default. Privileged containers are not affected. */
export const SECCOMP = { seccompProfile: { type: "RuntimeDefault" } } as const;

/** No capabilities, no privilege escalation, and a read-only root file system. */
const CONFINED = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ["ALL"] },
} as const;

/** Runs as nobody. */
export const UNPRIVILEGED = { runAsNonRoot: true, runAsUser: 65534, ...CONFINED } as const;

/**
 * Runs as root, which owns the mounted folders of the host, with only these capabilities. If SELinux is enforced, only
 * containers of type spc_t may write files of the host; otherwise the runtime ignores the type.
 */
export const hostRoot = (capabilities: readonly string[] = []): object => ({
  runAsUser: 0,
  ...CONFINED,
  ...(capabilities.length === 0 ? {} : { capabilities: { drop: ["ALL"], add: capabilities } }),
  seLinuxOptions: { type: "spc_t" },
});
