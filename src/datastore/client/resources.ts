// Converts between resources as users name and see them and the entries that store them.
import {
  isTieredKind,
  type KindName,
  kindOf,
  type Resource,
  type ResourceKey,
  type ResourceOf,
  storedPolicyNames,
} from "../../model/index.ts";
import type { Revision, Stored, WatchEvent } from "../datastore.ts";
import { ValidationFailed } from "../errors.ts";
import { withTierLabel } from "./policy-hooks.ts";
import { withReadDefaults } from "./read-defaults.ts";

export interface ResourceName<K extends KindName = KindName> {
  readonly kind: K;
  readonly name: string;
  /** Set for namespaced kinds only. */
  readonly namespace?: string;
}
export interface ResourceQuery<K extends KindName = KindName> {
  readonly kind: K;
  readonly namespace?: string;
  readonly name?: string;
  readonly namePrefix?: string;
}
export interface ResourceList<K extends KindName = KindName> {
  readonly items: readonly ResourceOf<K>[];
  readonly revision: Revision;
}
export type ResourceEvent<K extends KindName = KindName> =
  | { readonly type: "added" | "modified"; readonly resource: ResourceOf<K>; readonly revision: Revision }
  | { readonly type: "deleted"; readonly name: ResourceName<K>; readonly revision: Revision }
  | { readonly type: "bookmark"; readonly revision: Revision }
  | { readonly type: "error"; readonly error: Error };

export const nameOf = ({ kind, metadata }: Resource): ResourceName => ({
  kind,
  name: metadata.name,
  namespace: metadata.namespace,
});

/** Returns the keys under which the resource may be stored. New resources are written under the first. */
export function keysOf({ kind, name, namespace }: ResourceName): [ResourceKey, ...ResourceKey[]] {
  const place = namespace === undefined || namespace === "" ? {} : { namespace };
  const key = (stored: string): ResourceKey => ({ type: "resource", kind, name: stored, ...place });
  const [first = name, ...older] = isTieredKind(kind) ? storedPolicyNames(name) : [name];
  return [key(first), ...older.map(key)];
}

export function checkScope({ kind, name, namespace = "" }: ResourceName): void {
  const { namespaced } = kindOf(kind);
  if (name === "") throw new ValidationFailed([{ field: "metadata.name", value: "", reason: "name must be set" }]);
  if (namespaced && namespace === "")
    throw new ValidationFailed([
      { field: "metadata.namespace", value: "", reason: "namespace is not specified on namespaced resource" },
    ]);
}

export function queryOf({ kind, namespace, name, namePrefix }: ResourceQuery) {
  const byName = !isTieredKind(kind); // stored names of policies may differ: the client filters them after the list
  return {
    type: "resource",
    kind,
    ...(namespace !== undefined && namespace !== "" && { namespace }),
    ...(byName && name !== undefined && { name }),
    ...(byName && namePrefix !== undefined && { namePrefix }),
  } as const;
}

/** Returns a stored resource as users see it: with its revision and defaults; a policy with its tier as a label. */
export function toUserView({ value, revision }: Stored<ResourceKey>): Resource {
  const resource = isTieredKind(value.kind) ? withTierLabel(value) : withReadDefaults(value);
  return { ...resource, metadata: { ...resource.metadata, resourceVersion: revision } };
}

export function resourceEvent<K extends KindName>(event: WatchEvent<ResourceKey>): ResourceEvent<K> {
  switch (event.type) {
    case "added":
    case "modified":
      return { type: event.type, resource: toUserView(event.item) as ResourceOf<K>, revision: event.revision };
    case "deleted": {
      const { kind, namespace } = event.key;
      const name = event.previous?.value.metadata.name ?? event.key.name;
      return { type: "deleted", name: { kind: kind as K, name, namespace }, revision: event.revision };
    }
    case "bookmark":
      return event;
    case "error":
      return { type: "error", error: event.error };
  }
}
