// What the commands do to one resource. Each takes the resource as the user gave it and answers with the stored one.
import { AlreadyExists, Conflict, Unsupported } from "../datastore/index.ts";
import type { Metadata, Resource } from "../model/index.ts";
import type { Flags } from "./command.ts";
import { refuseReadOnly } from "./guards.ts";
import type { InputResource } from "./input/resources.ts";
import type { ManagedKind } from "./kinds.ts";
import { inNamespace, namespaceFor } from "./namespaces.ts";
import type { ResourceName, ResourceStore } from "./store.ts";

const MOST_TRIES = 5;
const PAUSE_MS = 100;

/** The resource with its namespace settled. */
export function settle({ kind, resource }: Pick<InputResource, "kind" | "resource">, flags: Flags): Resource {
  return inNamespace(resource, namespaceFor(kind, resource.metadata.namespace, flags));
}

export function nameOf(resource: Resource): ResourceName {
  const { name, namespace } = resource.metadata;
  const kind = resource.kind as ManagedKind;
  return namespace === undefined ? { kind, name } : { kind, name, namespace };
}

export async function create(store: ResourceStore, resource: Resource): Promise<Resource> {
  refuseReadOnly(nameOf(resource), "create or apply");
  return store.create(forCreate(resource));
}

/** Creates; what exists is updated instead, under the revision the user gave. */
export async function apply(store: ResourceStore, resource: Resource): Promise<Resource> {
  refuseReadOnly(nameOf(resource), "create or apply");
  const { resourceVersion: _, ...metadata } = resource.metadata;
  try {
    return await store.create(forCreate({ ...resource, metadata }));
  } catch (error) {
    if (!(error instanceof AlreadyExists || error instanceof Unsupported)) throw error;
    return update(store, resource);
  }
}

export async function replace(store: ResourceStore, resource: Resource): Promise<Resource> {
  refuseReadOnly(nameOf(resource), "replace");
  return update(store, resource);
}

export async function remove(store: ResourceStore, resource: Resource): Promise<Resource> {
  refuseReadOnly(nameOf(resource), "delete");
  return store.delete(nameOf(resource), resource.metadata.resourceVersion);
}

/**
 * Identity and history of the stored resource stay, labels and annotations are the user's. A revision that was given
 * must be the stored one; without, somebody who writes at the same time only makes us try again.
 */
export async function update(store: ResourceStore, resource: Resource): Promise<Resource> {
  const wanted = resource.metadata.resourceVersion;
  for (let attempt = 1; ; attempt++) {
    const current = await store.get(nameOf(resource));
    if (wanted !== undefined && wanted !== current.metadata.resourceVersion) throw new Conflict(idOf(resource));
    try {
      return await store.update({ ...resource, metadata: merge(current.metadata, resource.metadata) });
    } catch (error) {
      if (!(error instanceof Conflict) || wanted !== undefined || attempt >= MOST_TRIES) throw error;
      await Bun.sleep(PAUSE_MS * attempt);
    }
  }
}

function merge(stored: Metadata, given: Metadata): Metadata {
  const { labels: _labels, annotations: _annotations, ...identity } = stored;
  return {
    ...identity,
    ...(given.labels === undefined ? {} : { labels: given.labels }),
    ...(given.annotations === undefined ? {} : { annotations: given.annotations }),
  };
}

/** Of the metadata only what a user decides. */
function forCreate(resource: Resource): Resource {
  const { name, namespace, resourceVersion, labels, annotations } = resource.metadata;
  return {
    ...resource,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(labels === undefined ? {} : { labels }),
      ...(annotations === undefined ? {} : { annotations }),
    },
  };
}

/** `Kind(name)` or `Kind(namespace/name)`, as messages have it. */
function idOf(resource: Resource): string {
  const { kind, name, namespace } = nameOf(resource);
  return namespace === undefined ? `${kind}(${name})` : `${kind}(${namespace}/${name})`;
}
