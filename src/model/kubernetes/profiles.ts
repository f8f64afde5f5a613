// Converts namespaces and service accounts to profiles, from which endpoints inherit their labels with a prefix. As in
// Kubernetes, the profile of a namespace allows traffic to which no policy applies.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import {
  NAME_LABEL,
  NAMESPACE_PREFIX,
  NAMESPACE_PROFILE,
  prefixed,
  SERVICE_ACCOUNT_PREFIX,
  SERVICE_ACCOUNT_PROFILE,
} from "../labels.ts";
import { API_VERSION, type Labels, type Metadata, type Resource } from "../resource.ts";
import { namesOf, originOf } from "./metadata.ts";

interface ProfileSpecJson {
  readonly ingress?: readonly { readonly action: "Allow" }[];
  readonly egress?: readonly { readonly action: "Allow" }[];
  readonly labelsToApply: Labels;
}
export type DerivedProfile = Resource<"Profile", ProfileSpecJson>;

/** Returns the profile `kns.<namespace>`. Its revision is `<revision>/`: `<namespaces>/<service accounts>`. */
export function profileFromNamespace(json: unknown): DerivedProfile {
  const object = new JsonReader(json);
  const { name, labels } = namesOf(object);
  const origin = originOf(object, "converted");
  return profile(NAMESPACE_PROFILE + name, origin, `${origin.resourceVersion ?? ""}/`, {
    ingress: [{ action: "Allow" }],
    egress: [{ action: "Allow" }],
    labelsToApply: labelsToApply(NAMESPACE_PREFIX, labels, name),
  });
}

/** Returns the profile `ksa.<namespace>.<name>`, which has no rules. Its revision is `/<revision>`. */
export function profileFromServiceAccount(json: unknown): DerivedProfile {
  const object = new JsonReader(json);
  const { name, namespace, labels } = namesOf(object);
  const origin = originOf(object, "converted");
  return profile(serviceAccountProfileName(namespace, name), origin, `/${origin.resourceVersion ?? ""}`, {
    labelsToApply: labelsToApply(SERVICE_ACCOUNT_PREFIX, labels, name),
  });
}

function labelsToApply(prefix: string, labels: Labels, name: string): Labels {
  const result = prefixed(prefix, labels);
  result[prefix + NAME_LABEL] = name; // not spread into a copy: a tenant may give an object 130,000 labels
  return result;
}

export const serviceAccountProfileName = (namespace: string, name: string): string =>
  `${SERVICE_ACCOUNT_PROFILE}${namespace === "" ? "default" : namespace}.${name}`;

export type ProfileOrigin =
  | { readonly type: "namespace"; readonly name: string }
  | { readonly type: "serviceAccount"; readonly namespace: string; readonly name: string };

/**
 * Returns the object from which a profile is derived; undefined for other profiles. The name of a service account may
 * contain dots.
 */
export function profileOrigin(name: string): ProfileOrigin | undefined {
  if (name.startsWith(NAMESPACE_PROFILE) && name.length > NAMESPACE_PROFILE.length)
    return { type: "namespace", name: name.slice(NAMESPACE_PROFILE.length) };
  const [, namespace, account] = /^ksa\.([^.]+)\.(.+)$/.exec(name) ?? [];
  return namespace === undefined || account === undefined
    ? undefined
    : { type: "serviceAccount", namespace, name: account };
}

function profile(
  name: string,
  origin: Partial<Metadata>,
  resourceVersion: string,
  spec: ProfileSpecJson,
): DerivedProfile {
  const isKnown = origin.resourceVersion !== undefined;
  return {
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { ...origin, name, ...(isKnown ? { resourceVersion } : {}) },
    spec,
  };
}
