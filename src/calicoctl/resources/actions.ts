// Implements the write operations on one resource: each rejects resources that calicoctl never writes, then calls the client.
import type { Client, ResourceName } from "../../datastore/index.ts";
import type { Resource } from "../../model/index.ts";
import { rejectReadOnly } from "./guards.ts";
import type { InputResource } from "../input/resources.ts";
import type { ManagedKind } from "./kinds.ts";
import { inNamespace, type NamespaceFlags, namespaceFor } from "./namespaces.ts";

/** Returns the resource with its effective namespace. */
export function resolveNamespace(
  { kind, resource }: Pick<InputResource, "kind" | "resource">,
  flags: NamespaceFlags,
): Resource {
  return inNamespace(resource, namespaceFor(kind, resource.metadata.namespace, flags));
}

export function nameOf(resource: Resource): ResourceName<ManagedKind> {
  const { name, namespace } = resource.metadata;
  const kind = resource.kind as ManagedKind;
  return namespace === undefined ? { kind, name } : { kind, name, namespace };
}

export async function create(client: Client, resource: Resource): Promise<Resource> {
  rejectReadOnly(nameOf(resource), "create or apply");
  return client.create(forCreate(resource));
}

export async function apply(client: Client, resource: Resource): Promise<Resource> {
  rejectReadOnly(nameOf(resource), "create or apply");
  return client.apply(forCreate(resource));
}

export async function replace(client: Client, resource: Resource): Promise<Resource> {
  rejectReadOnly(nameOf(resource), "replace");
  return client.replace(resource);
}

export async function remove(client: Client, resource: Resource): Promise<Resource> {
  rejectReadOnly(nameOf(resource), "delete");
  return client.delete(nameOf(resource), { revision: resource.metadata.resourceVersion });
}

/** Keeps only the metadata that users set. */
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
