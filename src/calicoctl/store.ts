// What commands ask of a datastore: resources by kind and name, already checked, defaulted and guarded by the client
// behind it. Resources carry their revision in `metadata.resourceVersion`.
import type { Resource } from "../model/index.ts";
import type { ManagedKind } from "./kinds.ts";

export interface ResourceName {
  readonly kind: ManagedKind;
  readonly name: string;
  /** Present exactly for namespaced kinds. */
  readonly namespace?: string;
}

export interface ResourceStore {
  create(resource: Resource): Promise<Resource>;
  /** Compares `metadata.resourceVersion` with what is stored. */
  update(resource: Resource): Promise<Resource>;
  delete(name: ResourceName, revision?: string): Promise<Resource>;
  get(name: ResourceName): Promise<Resource>;
  list(query: { readonly kind: ManagedKind; readonly namespace?: string }): Promise<ResourceList>;
}

export interface ResourceList {
  readonly items: readonly Resource[];
  readonly revision: string;
}
