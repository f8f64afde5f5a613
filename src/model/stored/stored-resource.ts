// Encodes and decodes v3 resources as stored in etcd and SQLite: the whole object as JSON, without the revision, which
// the datastore keeps itself. Stored policies of tiered kinds also have an annotation with the name that the user gave
// them; decoding removes it.
import {
  isJsonObject,
  type Json,
  describeJson,
  type JsonObject,
  stringifyLosslessJson,
} from "../../lib/encoding/lossless-json.ts";
import type { ResourceKey } from "../keys/keys.ts";
import { isTieredKind, METADATA_ANNOTATION, policyNameAnnotation, userPolicyName } from "../keys/policy-names.ts";
import { API_VERSION, type Labels, type Metadata, type Resource } from "../resource.ts";
import { UnreadableValue } from "./unreadable-value.ts";

/** In the order in which Calico writes them. */
const METADATA_FIELDS = [
  "name",
  "generateName",
  "namespace",
  "uid",
  "generation",
  "creationTimestamp",
  "deletionTimestamp",
  "labels",
  "annotations",
  "ownerReferences",
  "finalizers",
] as const satisfies readonly (keyof Metadata)[];

export function encodeResource(resource: Resource): string {
  const { kind, apiVersion, metadata, spec, status, ...others } = resource;
  const written: Record<string, unknown> = {};
  for (const field of METADATA_FIELDS) {
    const value = metadata[field];
    if (value !== undefined && !isEmptyMap(value)) written[field] = value;
  }
  if (isTieredKind(kind))
    written["annotations"] = { ...metadata.annotations, [METADATA_ANNOTATION]: policyNameAnnotation(metadata.name) };
  return stringifyLosslessJson({ kind, apiVersion, metadata: written, spec, status, ...others });
}

const isEmptyMap = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0;

/** Returns the stored object, with name and namespace from the key. The caller validates the spec. */
export function decodeResource(key: ResourceKey, json: JsonObject): Resource {
  const { kind, apiVersion } = json;
  const metadata = json["metadata"] ?? {};
  const spec = json["spec"] ?? {};
  if (kind !== undefined && kind !== key.kind)
    throw new UnreadableValue(`kind: want ${key.kind}, not ${describeJson(kind)}`);
  if (!isJsonObject(metadata)) throw new UnreadableValue("metadata: want an object");
  if (!isJsonObject(spec)) throw new UnreadableValue("spec: want an object");
  return {
    ...json,
    apiVersion: typeof apiVersion === "string" && apiVersion !== "" ? apiVersion : API_VERSION,
    kind: key.kind,
    metadata: decodeMetadata(key, metadata, spec),
    spec,
  };
}

function decodeMetadata(key: ResourceKey, metadata: JsonObject, spec: Json): Metadata {
  const decoded: Record<string, unknown> = {};
  for (const field of METADATA_FIELDS) {
    const value = metadata[field];
    if (hasType(field, value)) decoded[field] = value;
  }
  decoded["name"] = key.name;
  if (key.namespace !== undefined) decoded["namespace"] = key.namespace;
  checkLabels(metadata, "labels");
  const annotations = checkLabels(metadata, "annotations");
  if (isTieredKind(key.kind)) {
    const { [METADATA_ANNOTATION]: nameAnnotation, ...shown } = annotations;
    const tier = isJsonObject(spec) && typeof spec["tier"] === "string" ? spec["tier"] : undefined;
    decoded["name"] = userPolicyName(key.name, tier, nameAnnotation);
    if (Object.keys(shown).length > 0) decoded["annotations"] = shown;
    else delete decoded["annotations"];
  }
  return decoded as unknown as Metadata;
}

/** A field of the wrong type counts as absent: an invalid creation time must not make a policy unreadable. */
function hasType(field: (typeof METADATA_FIELDS)[number], value: Json | undefined): boolean {
  switch (field) {
    case "labels":
    case "annotations":
      return isJsonObject(value);
    case "ownerReferences":
    case "finalizers":
      return Array.isArray(value);
    case "generation":
      return typeof value === "number" || typeof value === "bigint";
    default:
      return typeof value === "string";
  }
}

function checkLabels(metadata: JsonObject, field: "labels" | "annotations"): Labels {
  const map = metadata[field] ?? {};
  if (!isJsonObject(map)) throw new UnreadableValue(`metadata.${field}: want an object`);
  for (const name in map)
    if (typeof map[name] !== "string") throw new UnreadableValue(`metadata.${field}.${name}: want text`);
  return map as Labels;
}
