// Defines how the objects of one collection of the Kubernetes API are selected and converted to entries. The driver's code
// is the same for all collections; each kind implements this interface.
import type { StoredKey, StoredQuery } from "../../model/index.ts";
import type { Entry, Stored } from "../datastore.ts";
import type { KubeObject } from "./api-client.ts";
import type { Definition } from "./not-served.ts";

export interface Selection {
  readonly path: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  /** Path of the only object that can match. An account without permission to list can get it. */
  readonly item?: string;
}

export interface Collection<K extends StoredKey = StoredKey> {
  /** Name of the kind, for messages. */
  readonly kind: string;
  /** Its objects may contain integers above 2^53. */
  readonly lossless?: boolean;
  /** An object is marked as deleted before it is deleted, so that concurrent writers of the object get a conflict. */
  readonly marked?: boolean;
  /** The kind does not belong to Calico, and many clusters do not have it. */
  readonly isOptional?: boolean;
  /** The CRD of the kind; undefined if the kind is built into Kubernetes or belongs to Calico. */
  readonly definition?: Definition;
  /** Returns the path and selectors of a query. They may select more objects than the query matches. */
  select(query: StoredQuery): Selection;
  /** Returns several narrower selections for a list, where a watch needs a single, wider one. */
  selectForList?(query: StoredQuery): readonly Selection[];
  /** Returns the key of an object, readable or not; undefined if the object is not an entry of this kind. */
  keyOf(object: KubeObject): K | undefined;
  itemPath(key: K): string;
  /** The path for POST requests. */
  createPath(key: K): string;
  /**
   * Decodes an object, even one that is marked. Returns undefined if the object is not an entry of this kind.
   * @throws for an unreadable object
   */
  decode(object: KubeObject): Stored<K> | undefined;
  encode(entry: Entry<K>): KubeObject;
  /** Whether the object is marked as deleted. */
  isMarked?(object: KubeObject): boolean;
  /** Returns the object with the mark. */
  mark?(object: KubeObject): KubeObject;
}
