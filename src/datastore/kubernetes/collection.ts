// One collection of the Kubernetes API and how its objects become stored entries and back. What a driver does with a
// collection is the same for all of them; what differs stands in an implementation of this.
import type { StoredKey, StoredQuery } from "../../model/index.ts";
import type { Entry, Stored } from "../datastore.ts";
import type { KubeObject } from "./api-client.ts";
import type { Definition } from "./not-served.ts";

export interface Selection {
  readonly path: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  /** There can be one at most, and this is its path: who may only get it can still ask. */
  readonly item?: string;
}

export interface Collection<K extends StoredKey = StoredKey> {
  /** How messages name it. */
  readonly kind: string;
  /** Numbers beyond 2^53 occur in its objects. */
  readonly lossless?: boolean;
  /** Deletion goes in two steps, mark and remove, so that a reader never meets a name twice. */
  readonly marked?: boolean;
  /** Not of ours: the server may well not have it. */
  readonly isOptional?: boolean;
  /** The definition whose installation makes the server serve the kind; undefined if it is built in or of Calico. */
  readonly definition?: Definition;
  /** Where the objects of a query are; the query may match fewer than what comes back. */
  select(query: StoredQuery): Selection;
  /** For lists, where several narrow ones together beat the one that a watch needs. */
  selectForList?(query: StoredQuery): readonly Selection[];
  /** The key an object has, readable or not; undefined for one that is none of ours. */
  keyOf(object: KubeObject): K | undefined;
  itemPath(key: K): string;
  /** The path new objects are posted to. */
  createPath(key: K): string;
  /** Marked ones too. Undefined for an object that is none of ours; throws what says why it is unreadable. */
  decode(object: KubeObject): Stored<K> | undefined;
  encode(entry: Entry<K>): KubeObject;
  /** Whether the object is marked as deleted, and how to mark it. */
  isMarked?(object: KubeObject): boolean;
  mark?(object: KubeObject): KubeObject;
}
