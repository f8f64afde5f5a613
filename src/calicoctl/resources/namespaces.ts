// Which namespace a resource is in: its own, the one asked for, or `default`; and who may not have one.
import type { Metadata, Resource } from "../../model/index.ts";
import { isNamespaced, type ManagedKind } from "./kinds.ts";

export const DEFAULT_NAMESPACE = "default";

/** Said of one resource, not of the command: others go on. */
export class NamespaceFault extends Error {
  override readonly name = "NamespaceFault";
}

/** The flags of a command that select namespaces. */
export interface NamespaceFlags {
  readonly namespace: string | undefined;
  readonly "all-namespaces"?: boolean;
}

/** The namespace for a resource that says `own` itself. */
export function namespaceFor(kind: ManagedKind, own: string | undefined, flags: NamespaceFlags): string | undefined {
  const asked = flags.namespace || undefined;
  if (!isNamespaced(kind)) {
    if (asked !== undefined || own !== undefined || flags["all-namespaces"] === true)
      throw new NamespaceFault(`${kind} is not namespaced`);
    return undefined;
  }
  if (own !== undefined && own !== "" && asked !== undefined && own !== asked)
    throw new NamespaceFault(`resource namespace does not match client namespace. ${own} != ${asked}`);
  return own || asked || DEFAULT_NAMESPACE;
}

export function inNamespace(resource: Resource, namespace: string | undefined): Resource {
  const { namespace: _, ...others } = resource.metadata;
  const metadata: Metadata = namespace === undefined ? others : { ...others, namespace };
  return { ...resource, metadata };
}
