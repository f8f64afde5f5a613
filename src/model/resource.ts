// Defines the structure that all v3 resources have in common. The schemas in kinds/ define the type of each spec.
import type { KindName } from "./kinds.ts";

export const API_VERSION = "projectcalico.org/v3";

export type Labels = Readonly<Record<string, string>>;

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

export interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly generateName?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly generation?: number;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  readonly ownerReferences?: readonly OwnerReference[];
  readonly finalizers?: readonly string[];
}

/** Any v3 resource. Narrow the spec with the type of the kind, such as `IPPoolResource`. */
export interface Resource<K extends KindName = KindName, Spec = unknown, Status = unknown> {
  readonly apiVersion: string;
  readonly kind: K;
  readonly metadata: Metadata;
  readonly spec: Spec;
  readonly status?: Status;
}
