// Lists the kinds of policy, and parses the policy names of old keys, which did not contain the kind.
import type { PolicyKey, PolicyKind } from "./keys.ts";

export interface PolicyKindFacts {
  readonly name: PolicyKind;
  readonly namespaced: boolean;
  readonly staged: boolean;
}

const POLICY_KINDS: readonly PolicyKindFacts[] = [
  { name: "NetworkPolicy", namespaced: true, staged: false },
  { name: "GlobalNetworkPolicy", namespaced: false, staged: false },
  { name: "StagedNetworkPolicy", namespaced: true, staged: true },
  { name: "StagedGlobalNetworkPolicy", namespaced: false, staged: true },
  { name: "StagedKubernetesNetworkPolicy", namespaced: true, staged: true },
  { name: "KubernetesNetworkPolicy", namespaced: true, staged: false },
  { name: "KubernetesClusterNetworkPolicy", namespaced: false, staged: false },
];

const BY_NAME: ReadonlyMap<string, PolicyKindFacts> = new Map(POLICY_KINDS.map((kind) => [kind.name, kind]));

export const policyKindOf = (name: string): PolicyKindFacts | undefined => BY_NAME.get(name);
export const isStagedKind = (kind: PolicyKind): boolean => BY_NAME.get(kind)?.staged === true;

const STAGED = "staged:";
const KUBERNETES = "knp.default.";
const CLUSTER = "kcnp.";

/**
 * Parses `[namespace/][staged:][knp.default.]name`, the last component of the old path `…/tier/<tier>/policy/<name>`.
 * The prefixes that marked the kind are removed from the name.
 */
export function parseLegacyPolicyName(text: string): PolicyKey | undefined {
  const slash = text.indexOf("/");
  const namespace = slash < 0 ? "" : text.slice(0, slash);
  const marked = text.slice(slash + 1);
  const staged = marked.startsWith(STAGED);
  const unstaged = staged ? marked.slice(STAGED.length) : marked;
  const isKubernetes = unstaged.startsWith(KUBERNETES) && namespace !== "";
  const isCluster = unstaged.startsWith(CLUSTER) && namespace === "" && !staged;
  const name = isKubernetes ? unstaged.slice(KUBERNETES.length) : isCluster ? unstaged.slice(CLUSTER.length) : unstaged;
  if (name === "" || name.includes("/") || (slash === 0 && namespace === "")) return undefined;
  return { type: "policy", kind: kindOfLegacy(namespace !== "", staged, isKubernetes, isCluster), namespace, name };
}

function kindOfLegacy(namespaced: boolean, staged: boolean, kubernetes: boolean, cluster: boolean): PolicyKind {
  if (cluster) return "KubernetesClusterNetworkPolicy";
  if (kubernetes) return staged ? "StagedKubernetesNetworkPolicy" : "KubernetesNetworkPolicy";
  if (namespaced) return staged ? "StagedNetworkPolicy" : "NetworkPolicy";
  return staged ? "StagedGlobalNetworkPolicy" : "GlobalNetworkPolicy";
}
