// Defines the names of labels and profiles that Calico derives from namespaces, service accounts and pods.

export const NAMESPACE_LABEL = "projectcalico.org/namespace";
export const SERVICE_ACCOUNT_LABEL = "projectcalico.org/serviceaccount";
export const ORCHESTRATOR_LABEL = "projectcalico.org/orchestrator";
export const TIER_LABEL = "projectcalico.org/tier";
/** The name of a namespace or service account; used only with the prefix `pcns.` or `pcsa.`. */
export const NAME_LABEL = "projectcalico.org/name";

/** Endpoints inherit the labels of their namespace and service account with these prefixes. */
export const NAMESPACE_PREFIX = "pcns.";
export const SERVICE_ACCOUNT_PREFIX = "pcsa.";
export const NAMESPACE_PROFILE = "kns.";
export const SERVICE_ACCOUNT_PROFILE = "ksa.";

/** Labels by which selectors recognise a namespace, a service account or a pod. Only calico-ts and Calico set them. */
export const SYSTEM_LABELS: readonly string[] = [NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL, ORCHESTRATOR_LABEL];
export const SYSTEM_LABEL_PREFIXES: readonly string[] = [NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX];

export const isSystemLabel = (name: string): boolean =>
  SYSTEM_LABELS.includes(name) || SYSTEM_LABEL_PREFIXES.some((prefix) => name.startsWith(prefix));

/** Returns a copy with the prefix added to each name. */
export function prefixed(prefix: string, labels: Readonly<Record<string, string>>): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name in labels) result[prefix + name] = labels[name] ?? "";
  return result;
}

/** Returns the map itself if nothing is removed, which is the case for almost all endpoints. */
export function withoutLabels(
  labels: Readonly<Record<string, string>>,
  isRemoved: (name: string) => boolean,
): Readonly<Record<string, string>> {
  for (const name in labels)
    if (isRemoved(name)) return Object.fromEntries(Object.entries(labels).filter(([other]) => !isRemoved(other)));
  return labels;
}
