// Determines the namespace of a resource: its own, that of the command line, or `default`.
import type { Metadata, Resource } from "../../model/index.ts";
import { isNamespaced, type ManagedKind } from "./kinds.ts";

export const DEFAULT_NAMESPACE = "default";

/** An error of one resource; the command continues with the others. */
export class NamespaceFault extends Error {
  override readonly name = "NamespaceFault";
}

/** The flags of a command that select namespaces. */
export interface NamespaceFlags {
  readonly namespace: string | undefined;
  readonly "all-namespaces"?: boolean;
}

/** @param own the namespace in the resource itself */
export function namespaceFor(kind: ManagedKind, own: string | undefined, flags: NamespaceFlags): string | undefined {
  const requested = flags.namespace || undefined;
  if (!isNamespaced(kind)) {
    if (requested !== undefined || own !== undefined || flags["all-namespaces"] === true)
      throw new NamespaceFault(`${kind} is not namespaced`);
    return undefined;
  }
  if (own !== undefined && own !== "" && requested !== undefined && own !== requested)
    throw new NamespaceFault(`resource namespace does not match client namespace. ${own} != ${requested}`);
  return own || requested || DEFAULT_NAMESPACE;
}

export function inNamespace(resource: Resource, namespace: string | undefined): Resource {
  const { namespace: _, ...others } = resource.metadata;
  const metadata: Metadata = namespace === undefined ? others : { ...others, namespace };
  return { ...resource, metadata };
}
