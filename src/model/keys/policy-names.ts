// Three regimes of naming stored policies (by release of the field's programs), all of which we must read:
//   to 3.28   `default.<name>`; `knp.…` and `ossg.…` as they are
//   to 3.31   `<tier>.<name>`; from 3.30 the name the user gave stands in the annotation `projectcalico.org/metadata`
//   since     the name the user gave, in the key and in the annotation
import type { KindName } from "../kinds.ts";

/** On stored policies: JSON `{"name": …}`. Never shown to users. */
export const METADATA_ANNOTATION = "projectcalico.org/metadata";
export const DEFAULT_TIER = "default";
/** A Kubernetes NetworkPolicy copied into etcd by the controller bears this in front of its name. */
export const KUBERNETES_POLICY_PREFIX = "knp.default.";

export type TieredKind = "NetworkPolicy" | "GlobalNetworkPolicy" | "StagedNetworkPolicy" | "StagedGlobalNetworkPolicy";
const TIERED: ReadonlySet<string> = new Set<TieredKind>([
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
]);
export const isTieredKind = (kind: KindName): kind is TieredKind => TIERED.has(kind);

/** The value of the metadata annotation for a policy of that name. */
export const policyNameAnnotation = (name: string): string => JSON.stringify({ name });

/**
 * The name a user knows a stored policy by.
 * @param annotation what stands in the metadata annotation, if anything
 */
export function userPolicyName(stored: string, tier: string | undefined, annotation: string | undefined): string {
  const kept = nameInAnnotation(annotation);
  if (kept !== undefined) return kept;
  const prefix = `${DEFAULT_TIER}.`;
  const isDefault = tier === undefined || tier === "" || tier === DEFAULT_TIER;
  return isDefault && stored.startsWith(prefix) && stored.length > prefix.length ? stored.slice(prefix.length) : stored;
}

/** Under which names a policy may be stored, the one we write first. */
export function storedPolicyNames(name: string): readonly string[] {
  const isMarked = /^(default|knp|ossg)\./.test(name);
  return isMarked ? [name] : [name, `${DEFAULT_TIER}.${name}`];
}

function nameInAnnotation(annotation: string | undefined): string | undefined {
  if (annotation === undefined) return undefined;
  try {
    const { name } = JSON.parse(annotation) as { readonly name?: unknown };
    return typeof name === "string" && name !== "" ? name : undefined;
  } catch {
    return undefined; // someone else's annotation of that name: the stored name stands
  }
}
