// Filters out stored resources whose fields do not have the types of their kind, and reports them by key. Other programs also
// write to the datastore; after this filter, code can rely on the types.
import { UnreadableEntry } from "../../datastore/index.ts";
import { type FieldFault, keyPath, loadSchemas, type Resource } from "../../model/index.ts";
import type { ManagedKind } from "./kinds.ts";

export async function readableOnly(
  kind: ManagedKind,
  resources: readonly Resource[],
  onUnreadable: (error: UnreadableEntry) => void,
): Promise<readonly Resource[]> {
  const schema = await (await loadSchemas()).loadSchema(kind);
  return resources.filter((resource) => {
    const decoded = schema.decode(resource, { mode: "stored" });
    if (!decoded.ok) onUnreadable(unreadable(resource, decoded.faults.map(describeFault).join("; ")));
    return decoded.ok;
  });
}

export function unreadable({ kind, metadata }: Resource, reason: string): UnreadableEntry {
  const { name, namespace } = metadata;
  const key = { type: "resource", kind, name, namespace } as const;
  return new UnreadableEntry(keyPath(key), reason, key);
}

const describeFault = ({ field, reason }: FieldFault): string => `${field}: ${reason}`;
