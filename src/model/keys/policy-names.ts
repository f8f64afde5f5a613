// Converts between the names of policies in the datastore and the names that users see. calico-ts reads the names that
// all versions of Calico have stored:
//   up to 3.28   `default.<name>`; names with the prefix `knp.` or `ossg.` are stored unchanged
//   up to 3.31   `<tier>.<name>`; since 3.30 the annotation `projectcalico.org/metadata` contains the user's name
//   later        the user's name, in the key and in the annotation
import type { KindName } from "../kinds.ts";

/** An annotation of stored policies with the value `{"name": …}`. It is never shown to users. */
export const METADATA_ANNOTATION = "projectcalico.org/metadata";
export const DEFAULT_TIER = "default";
/** The controller adds this prefix to the name of a Kubernetes NetworkPolicy that it copies to etcd. */
export const KUBERNETES_POLICY_PREFIX = "knp.default.";

export type TieredKind = "NetworkPolicy" | "GlobalNetworkPolicy" | "StagedNetworkPolicy" | "StagedGlobalNetworkPolicy";
const TIERED: ReadonlySet<string> = new Set<TieredKind>([
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
]);
export const isTieredKind = (kind: KindName): kind is TieredKind => TIERED.has(kind);

/** Returns the value of the metadata annotation. */
export const policyNameAnnotation = (name: string): string => JSON.stringify({ name });

/**
 * Returns the name of a stored policy that users see.
 * @param annotation the value of the metadata annotation, if it exists
 */
export function userPolicyName(stored: string, tier: string | undefined, annotation: string | undefined): string {
  const annotatedName = nameInAnnotation(annotation);
  if (annotatedName !== undefined) return annotatedName;
  const prefix = `${DEFAULT_TIER}.`;
  const isDefault = tier === undefined || tier === "" || tier === DEFAULT_TIER;
  return isDefault && stored.startsWith(prefix) && stored.length > prefix.length ? stored.slice(prefix.length) : stored;
}

/** Returns the names under which a policy may be stored. calico-ts writes the first of them. */
export function storedPolicyNames(name: string): readonly string[] {
  const hasPrefix = /^(default|knp|ossg)\./.test(name);
  return hasPrefix ? [name] : [name, `${DEFAULT_TIER}.${name}`];
}

function nameInAnnotation(annotation: string | undefined): string | undefined {
  if (annotation === undefined) return undefined;
  try {
    const { name } = JSON.parse(annotation) as { readonly name?: unknown };
    return typeof name === "string" && name !== "" ? name : undefined;
  } catch {
    return undefined; // not written by Calico: the stored name is used
  }
}
