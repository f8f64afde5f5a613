// Converts Calico's kinds to custom resources.
//
// `crd.projectcalico.org/v1`: the object keeps its name, namespace, revision and (with converted bits) UID; all other
// metadata is stored as JSON in one annotation, because the API server would change or reject some of it. Labels and
// annotations of Calico and its operator are also set on the object. `projectcalico.org/v3` objects are stored unchanged.
import { isJsonObject, type Json, type JsonObject } from "../../lib/encoding/lossless-json.ts";
import {
  API_VERSION,
  convertUid,
  ignoreUnreadable,
  isTieredKind,
  type KindName,
  kindOf,
  type Labels,
  type Metadata,
  METADATA_ANNOTATION,
  type OwnerReference,
  readLegacyPoolFields,
  readPolicyTarget,
  type Resource,
  type ResourceKey,
  specFields,
  type StoredQuery,
  userPolicyName,
} from "../../model/index.ts";
import type { Entry, Stored } from "../datastore.ts";
import type { KubeMetadata, KubeObject } from "./api-client.ts";
import type { Collection, Selection } from "./collection.ts";

export const CRD_V1 = "crd.projectcalico.org/v1";
export const CRD_V3 = API_VERSION;
export type ApiGroup = typeof CRD_V1 | typeof CRD_V3;

const VISIBLE = /projectcalico\.org\/|operator\.tigera\.io\//;
/** In the order in which Calico writes them, without the fields that Kubernetes stores itself. */
const HIDDEN_FIELDS = [
  "name",
  "generateName",
  "creationTimestamp",
  "labels",
  "annotations",
  "ownerReferences",
  "finalizers",
] as const;

export class CustomResources implements Collection<ResourceKey> {
  readonly kind: string;
  readonly #name: KindName;
  readonly #group: ApiGroup;
  readonly #plural: string;
  readonly #namespaced: boolean;

  constructor(kind: KindName, group: ApiGroup) {
    const { plural, namespaced } = kindOf(kind);
    const isLegacyConfig = kind === "IPAMConfiguration" && group === CRD_V1;
    this.#name = kind;
    this.kind = isLegacyConfig ? "IPAMConfig" : kind;
    this.#plural = isLegacyConfig ? "ipamconfigs" : plural;
    this.#group = group;
    this.#namespaced = namespaced;
  }

  select(query: StoredQuery): Selection {
    if (query.type !== "resource") throw new Error(`query for ${query.type} in the collection ${this.kind}`);
    const inNamespace = this.#namespaced && query.namespace !== undefined;
    const path = inNamespace ? this.#path(query.namespace) : this.#path();
    return query.name === undefined ? { path } : { path, fieldSelector: `metadata.name=${query.name}` };
  }

  keyOf(object: KubeObject): ResourceKey {
    return {
      type: "resource",
      kind: this.#name,
      name: object.metadata.name, // policies may be stored under another name than their users see
      ...(this.#namespaced ? { namespace: object.metadata.namespace ?? "" } : {}),
    };
  }

  itemPath(key: ResourceKey): string {
    return `${this.#path(key.namespace)}/${encodeURIComponent(key.name)}`;
  }

  createPath(key: ResourceKey): string {
    return this.#path(key.namespace);
  }

  decode(object: KubeObject & { readonly spec?: unknown; readonly status?: unknown }): Stored<ResourceKey> {
    const metadata = this.#group === CRD_V1 ? readMetadata(this.#name, object) : plainMetadata(object.metadata);
    const spec = this.#name === "IPPool" ? readLegacyPoolFields(specFields(object)) : (object.spec ?? {});
    const value: Resource = {
      apiVersion: API_VERSION,
      kind: this.#name,
      metadata,
      spec,
      ...(object.status === undefined ? {} : { status: object.status }),
    };
    const { resourceVersion = "", uid } = object.metadata;
    return { key: this.keyOf(object), value, revision: resourceVersion, uid };
  }

  encode(entry: Entry<ResourceKey>): KubeObject {
    const resource = entry.value;
    const { name, namespace } = entry.key;
    const metadata =
      this.#group === CRD_V1
        ? hideMetadata(resource.metadata, isTieredKind(this.#name))
        : writableMetadata(resource.metadata);
    const object = {
      apiVersion: this.#group,
      kind: this.kind,
      metadata: {
        ...metadata,
        name,
        ...(namespace === undefined ? {} : { namespace }),
        ...(entry.revision === undefined ? {} : { resourceVersion: entry.revision }),
      },
      spec: resource.spec,
      status: resource.status,
    };
    return object;
  }

  #path(namespace?: string): string {
    const scope = this.#namespaced && namespace !== undefined ? `/namespaces/${encodeURIComponent(namespace)}` : "";
    return `/apis/${this.#group}${scope}/${this.#plural}`;
  }
}

/** Moves all metadata except name, namespace and UID into the annotation. */
export function hideMetadata(metadata: Metadata, keepName: boolean): Partial<KubeMetadata> {
  const hidden: Record<string, unknown> = {};
  for (const field of HIDDEN_FIELDS) {
    if (field === "name" && !keepName) continue;
    const value = metadata[field] ?? (field === "creationTimestamp" ? null : undefined);
    if (value === undefined || isEmpty(value)) continue;
    hidden[field] = field === "labels" || field === "annotations" ? sorted(value as Labels) : value;
  }
  const labels = visible(metadata.labels);
  return {
    ...(metadata.uid === undefined ? {} : { uid: convertUid(metadata.uid) }),
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(metadata.ownerReferences === undefined ? {} : { ownerReferences: metadata.ownerReferences.map(convertOwner) }),
    annotations: { ...visible(metadata.annotations), [METADATA_ANNOTATION]: JSON.stringify(hidden) },
  };
}

function readMetadata(kind: KindName, object: KubeObject & { readonly spec?: unknown }): Metadata {
  const { name, namespace, uid, resourceVersion, creationTimestamp, labels, annotations = {} } = object.metadata;
  const { [METADATA_ANNOTATION]: text, ...others } = annotations;
  const hidden = parseHidden(text);
  const { tier } = readPolicyTarget(object.spec, ignoreUnreadable);
  const userName = isTieredKind(kind) ? userPolicyName(name, tier, text) : name;
  const mergedLabels = { ...labels, ...hidden.labels };
  const mergedAnnotations = { ...others, ...hidden.annotations };
  const created = hidden.creationTimestamp ?? creationTimestamp;
  const owners =
    (object.metadata.ownerReferences as readonly OwnerReference[] | undefined)?.map(convertOwner) ??
    hidden.ownerReferences;
  return {
    name: userName,
    ...(namespace === undefined ? {} : { namespace }),
    ...(uid === undefined ? {} : { uid: convertUid(uid) }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
    ...(created === undefined ? {} : { creationTimestamp: created }),
    ...(object.metadata.deletionTimestamp === undefined
      ? {}
      : { deletionTimestamp: object.metadata.deletionTimestamp }),
    ...(hidden.generateName === undefined ? {} : { generateName: hidden.generateName }),
    ...(Object.keys(mergedLabels).length === 0 ? {} : { labels: mergedLabels }),
    ...(Object.keys(mergedAnnotations).length === 0 ? {} : { annotations: mergedAnnotations }),
    ...(owners === undefined ? {} : { ownerReferences: owners }),
    ...(hidden.finalizers === undefined ? {} : { finalizers: hidden.finalizers }),
  };
}

interface Hidden {
  readonly generateName?: string;
  readonly creationTimestamp?: string;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  readonly ownerReferences?: readonly OwnerReference[];
  readonly finalizers?: readonly string[];
}

/**
 * Returns the fields in the annotation that have the right type. A client can write any text there, and the API server
 * does not check it: one label that is not a string would stop every program that evaluates selectors.
 */
function parseHidden(text: string | undefined): Hidden {
  const json = parseObject(text);
  const { generateName, creationTimestamp, ownerReferences, finalizers } = json;
  const labels = textsIn(json["labels"]);
  const annotations = textsIn(json["annotations"]);
  return {
    ...(typeof generateName === "string" ? { generateName } : {}),
    ...(typeof creationTimestamp === "string" ? { creationTimestamp } : {}),
    labels,
    annotations,
    ...(isListOf(ownerReferences, isOwner) ? { ownerReferences } : {}),
    ...(isListOf(finalizers, isText) ? { finalizers } : {}),
  };
}

function parseObject(text: string | undefined): JsonObject {
  if (text === undefined) return {};
  try {
    const json = JSON.parse(text) as Json;
    return isJsonObject(json) ? json : {};
  } catch {
    return {};
  }
}

const isText = (value: unknown): value is string => typeof value === "string";
const isOwner = (value: unknown): value is OwnerReference =>
  isJsonObject(value as Json) &&
  ["apiVersion", "kind", "name", "uid"].every((field) => isText((value as JsonObject)[field]));

const isListOf = <T>(value: unknown, isItem: (item: unknown) => item is T): value is readonly T[] =>
  Array.isArray(value) && value.every(isItem);

function textsIn(value: Json | undefined): Labels | undefined {
  if (!isJsonObject(value)) return undefined;
  return Object.fromEntries(Object.entries(value).filter((entry): entry is [string, string] => isText(entry[1])));
}

const plainMetadata = (metadata: KubeMetadata): Metadata => metadata as Metadata;

/** Returns the metadata of a v3 object without the fields that only the server sets. */
function writableMetadata(metadata: Metadata): Partial<KubeMetadata> {
  const writable: Partial<Record<keyof Metadata, unknown>> = { ...metadata };
  delete writable.resourceVersion;
  delete writable.creationTimestamp;
  return writable as Partial<KubeMetadata>;
}

function convertOwner(owner: OwnerReference): OwnerReference {
  return owner.apiVersion === API_VERSION ? { ...owner, uid: convertUid(owner.uid) } : owner;
}

const visible = (map: Labels | undefined): Record<string, string> =>
  Object.fromEntries(Object.entries(map ?? {}).filter(([key]) => VISIBLE.test(key) && key !== METADATA_ANNOTATION));

/** Sorts the keys, so that equal maps are written as the same text. */
const sorted = (map: Labels): Labels => Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0;
