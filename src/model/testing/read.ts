// Builds stored resources from a few fields, and collects the problems that a reader reports.
import type { WrongShape } from "../../lib/encoding/json-reader.ts";
import type { KindName } from "../kinds.ts";
import type { OnUnreadable } from "../readers/unreadable.ts";
import { API_VERSION, type Metadata, type Resource } from "../resource.ts";

/** Parts of a stored resource; any of them may have a wrong type. */
export interface Stored {
  readonly metadata?: Partial<Metadata>;
  readonly spec?: unknown;
  readonly status?: unknown;
}

export const stored = (kind: KindName, { metadata, ...rest }: Stored): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name: "x", ...metadata },
  spec: {},
  ...rest,
});

export function readStored<T>(
  read: (resource: Resource, onUnreadable: OnUnreadable) => T,
  resource: Resource,
): { readonly value: T; readonly problems: readonly string[] } {
  const errors: WrongShape[] = [];
  const value = read(resource, (error) => errors.push(error));
  return { value, problems: errors.map(({ message }) => message) };
}
