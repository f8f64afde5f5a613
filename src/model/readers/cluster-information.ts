// Reads ClusterInformation.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import { fieldReader, ignoreUnreadable, type OnUnreadable } from "./unreadable.ts";

export interface ClusterInformation {
  readonly clusterGuid: string | undefined;
  readonly clusterType: string | undefined;
  readonly calicoVersion: string | undefined;
  readonly variant: string | undefined;
  /** Whether programs may use the datastore; undefined if the field is not set. */
  readonly isDatastoreReady: boolean | undefined;
}

export function readClusterInformation(resource: Resource, onUnreadable: OnUnreadable): ClusterInformation {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  const text = (name: string) => read(() => spec?.filled(name), undefined);
  return {
    clusterGuid: text("clusterGUID"),
    clusterType: text("clusterType"),
    calicoVersion: text("calicoVersion"),
    variant: text("variant"),
    isDatastoreReady: read(() => spec?.flag("datastoreReady"), undefined),
  };
}

/** True if the ClusterInformation states that programs may use the datastore. */
export const isDatastoreReady = (resource: Resource): boolean =>
  readClusterInformation(resource, ignoreUnreadable).isDatastoreReady === true;
