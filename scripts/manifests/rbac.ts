// Defines the rights of all components: one account per component, and no right that its code does not use.
// test/kubernetes/rbac.test.ts runs the code with these accounts, and tries forbidden requests.
import { CRD_KINDS } from "../../src/model/kinds/crd.ts";
import { kindOf } from "../../src/model/kinds.ts";
import { type KubernetesObject, NAMESPACE, type PolicyRule, type Verb } from "./objects.ts";

const RBAC = "rbac.authorization.k8s.io";
const CALICO = ["crd.projectcalico.org"];
const CORE = [""];
const READ: readonly Verb[] = ["get", "list", "watch"];
const WRITE: readonly Verb[] = ["create", "update", "delete"];

const rule = (apiGroups: readonly string[], resources: readonly string[], verbs: readonly Verb[]): PolicyRule => ({
  apiGroups,
  resources,
  verbs,
});

/** Virtual machines keep their addresses as long as they exist, so IPAM checks whether the machine of a pod exists. */
const MACHINES = rule(["kubevirt.io"], ["virtualmachines", "virtualmachineinstances"], ["get"]);

const IPAM = ["ipamblocks", "blockaffinities", "ipamhandles"] as const;
/** Written by only one component, and not used by nodes. */
const NOT_FOR_NODES = ["kubecontrollersconfigurations", "ipamhandles", "ipamconfigs", "ipreservations"];
const CUSTOM = CRD_KINDS.map((kind) => (kind === "IPAMConfiguration" ? "ipamconfigs" : kindOf(kind).plural)).sort();

/** The resources that agents watch, through Typha or directly. */
const FOLLOWED: readonly PolicyRule[] = [
  rule(CORE, ["nodes", "namespaces", "pods", "serviceaccounts", "services"], READ),
  rule(["discovery.k8s.io"], ["endpointslices"], READ),
  rule(["networking.k8s.io"], ["networkpolicies"], READ),
  rule(["policy.networking.k8s.io"], ["clusternetworkpolicies"], READ),
  rule(["kubevirt.io"], ["virtualmachineinstancemigrations"], READ),
  // To detect when the CRDs of the two kinds above are installed.
  rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], ["list", "watch"]),
  rule(
    CALICO,
    CUSTOM.filter((plural) => !NOT_FOR_NODES.includes(plural)),
    READ,
  ),
];

/** IPAM: blocks, affinities and handles are created, changed and deleted; pools and settings are only read. */
const ADDRESSES: readonly PolicyRule[] = [
  rule(CALICO, IPAM, [...READ, ...WRITE]),
  rule(CALICO, ["ippools", "ipreservations"], ["get", "list"]),
  rule(CALICO, ["ipamconfigs"], ["get", "create"]),
];

/** Resources of every cluster, which the first program creates. Only calico-kube-controllers updates them. */
const CLUSTER_FACTS: readonly PolicyRule[] = [rule(CALICO, ["clusterinformations", "tiers"], ["get", "create"])];

export const NODE_RULES: readonly PolicyRule[] = [
  ...FOLLOWED,
  ...ADDRESSES,
  ...CLUSTER_FACTS,
  // The CNI service watches the objects that each ADD would otherwise request.
  rule(CALICO, ["ipamconfigs", "ipreservations"], READ),
  // Startup creates default pools and settings (limited to these by own-node.ts) and changes none that exist.
  rule(CALICO, ["ippools", "felixconfigurations", "bgpconfigurations", "ipamconfigs"], ["create"]),
  // These, addresses, and the two below are limited to the account's own node by own-node.ts.
  rule(CALICO, ["caliconodestatuses/status", "caliconodestatuses"], ["update"]),
  // The fields of a Calico Node are in annotations of the Kubernetes Node, the addresses of a pod in its annotations.
  rule(CORE, ["nodes/status"], ["patch", "update"]),
  rule(CORE, ["pods/status"], ["patch"]),
  MACHINES,
];

/** Only in the namespace of the components. */
export const NODE_LOCAL_RULES: readonly PolicyRule[] = [
  // kubeadm and Rancher store the pod subnets there.
  { ...rule(CORE, ["configmaps"], ["get"]), resourceNames: ["kubeadm-config", "full-cluster-state"] },
  { ...rule(CORE, ["serviceaccounts/token"], ["create"]), resourceNames: ["calico-cni-plugin"] },
];

export const CNI_RULES: readonly PolicyRule[] = [
  rule(CORE, ["pods", "nodes", "namespaces"], ["get"]),
  rule(CORE, ["pods/status"], ["patch"]),
  ...ADDRESSES,
  rule(CALICO, ["clusterinformations"], ["get"]),
  MACHINES,
];

export const TYPHA_RULES: readonly PolicyRule[] = [...FOLLOWED, ...CLUSTER_FACTS];

const POLICIES = [
  "networkpolicies",
  "globalnetworkpolicies",
  "stagednetworkpolicies",
  "stagedglobalnetworkpolicies",
] as const;

export const CONTROLLER_RULES: readonly PolicyRule[] = [
  rule(CORE, ["nodes", "pods", "services"], READ),
  // A pool for services may be limited to some namespaces.
  rule(CORE, ["namespaces"], ["get"]),
  rule(CORE, ["services/status"], ["update"]),
  ...ADDRESSES,
  ...CLUSTER_FACTS,
  rule(CALICO, ["clusterinformations"], ["update"]),
  rule(CALICO, ["ippools", "ipreservations", "clusterinformations"], READ),
  rule(CALICO, ["hostendpoints"], [...READ, ...WRITE]),
  // Policies of older releases are renamed.
  rule(CALICO, POLICIES, ["get", "list", "create", "delete"]),
  rule(CALICO, ["kubecontrollersconfigurations"], [...READ, "create", "update"]),
  rule(CALICO, ["kubecontrollersconfigurations/status"], ["update"]),
  rule(["kubevirt.io"], ["virtualmachines", "virtualmachineinstances"], READ),
  { nonResourceURLs: ["/healthz"], verbs: ["get"] },
];

/** Controllers of Kubernetes delete the policies of a namespace, for which they must have `get` on the tiers. */
const TIER_GETTER: readonly PolicyRule[] = [rule(["projectcalico.org"], ["tiers"], ["get"])];

export const CONTROLLER_LOCAL_RULES: readonly PolicyRule[] = [
  rule(["apps"], ["daemonsets"], ["get"]),
  rule(["coordination.k8s.io"], ["leases"], ["create"]),
  { ...rule(["coordination.k8s.io"], ["leases"], ["get", "update"]), resourceNames: ["calico-kube-controllers"] },
];

/** With etcd as datastore, Kubernetes is only read. */
export const ETCD_NODE_RULES: readonly PolicyRule[] = [
  rule(CORE, ["nodes", "namespaces", "pods", "services"], READ),
  rule(["discovery.k8s.io"], ["endpointslices"], READ),
  rule(CORE, ["nodes/status"], ["patch"]),
  MACHINES,
];
export const ETCD_CNI_RULES: readonly PolicyRule[] = [rule(CORE, ["pods", "nodes", "namespaces"], ["get"]), MACHINES];
export const ETCD_CONTROLLER_RULES: readonly PolicyRule[] = [
  rule(CORE, ["nodes", "namespaces", "pods", "serviceaccounts", "services"], READ),
  rule(CORE, ["services/status"], ["update"]),
  rule(["networking.k8s.io"], ["networkpolicies"], READ),
  rule(["kubevirt.io"], ["virtualmachines", "virtualmachineinstances"], READ),
  { nonResourceURLs: ["/healthz"], verbs: ["get"] },
];

/** Returns an account with its rights in the whole cluster and in its own namespace. */
export function account(
  name: string,
  rules: readonly PolicyRule[],
  localRules: readonly PolicyRule[] = [],
): readonly KubernetesObject[] {
  const subjects = [{ kind: "ServiceAccount", name, namespace: NAMESPACE }];
  const bound = (kind: "ClusterRole" | "Role") => ({ roleRef: { apiGroup: RBAC, kind, name }, subjects });
  const local = { name, namespace: NAMESPACE };
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: local },
    { apiVersion: `${RBAC}/v1`, kind: "ClusterRole", metadata: { name }, rules },
    { apiVersion: `${RBAC}/v1`, kind: "ClusterRoleBinding", metadata: { name }, ...bound("ClusterRole") },
    ...(localRules.length === 0
      ? []
      : [
          { apiVersion: `${RBAC}/v1`, kind: "Role", metadata: local, rules: localRules },
          { apiVersion: `${RBAC}/v1`, kind: "RoleBinding", metadata: local, ...bound("Role") },
        ]),
  ];
}

export function tierGetter(): readonly KubernetesObject[] {
  const name = "calico-tier-getter";
  return [
    { apiVersion: `${RBAC}/v1`, kind: "ClusterRole", metadata: { name }, rules: TIER_GETTER },
    {
      apiVersion: `${RBAC}/v1`,
      kind: "ClusterRoleBinding",
      metadata: { name },
      roleRef: { apiGroup: RBAC, kind: "ClusterRole", name },
      subjects: [{ apiGroup: RBAC, kind: "User", name: "system:kube-controller-manager" }],
    },
  ];
}
