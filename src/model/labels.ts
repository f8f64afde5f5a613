// Labels with a meaning of their own.

export const NAMESPACE_LABEL = "projectcalico.org/namespace";
export const SERVICE_ACCOUNT_LABEL = "projectcalico.org/serviceaccount";
export const ORCHESTRATOR_LABEL = "projectcalico.org/orchestrator";
export const TIER_LABEL = "projectcalico.org/tier";
/** Behind `pcns.` or `pcsa.` only: the namespace's or service account's own name. */
export const NAME_LABEL = "projectcalico.org/name";

/** A namespace's labels come to its endpoints under this prefix, a service account's under the other. */
export const NAMESPACE_PREFIX = "pcns.";
export const SERVICE_ACCOUNT_PREFIX = "pcsa.";
export const NAMESPACE_PROFILE = "kns.";
export const SERVICE_ACCOUNT_PROFILE = "ksa.";

/** Labels by which selectors recognise a namespace, a service account or a pod. Only calico-ts and Calico set them. */
export const SYSTEM_LABELS: readonly string[] = [NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL, ORCHESTRATOR_LABEL];
export const SYSTEM_LABEL_PREFIXES: readonly string[] = [NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX];

export const isSystemLabel = (name: string): boolean =>
  SYSTEM_LABELS.includes(name) || SYSTEM_LABEL_PREFIXES.some((prefix) => name.startsWith(prefix));

/** The same map under prefixed names. */
export function prefixed(prefix: string, labels: Readonly<Record<string, string>>): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name in labels) result[prefix + name] = labels[name] ?? "";
  return result;
}

/** The map itself if nothing is removed, as for almost all endpoints. */
export function withoutLabels(
  labels: Readonly<Record<string, string>>,
  isRemoved: (name: string) => boolean,
): Readonly<Record<string, string>> {
  for (const name in labels)
    if (isRemoved(name)) return Object.fromEntries(Object.entries(labels).filter(([other]) => !isRemoved(other)));
  return labels;
}
