// Reads the one field of KubeControllersConfigurations that is checked against the datastore. kube-controllers uses the
// whole resource, validated by its schema.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/** `Enabled`, `Disabled` or unset. */
export function readSyncLabels(resource: Resource, onUnreadable: OnUnreadable): string | undefined {
  const read = fieldReader(onUnreadable);
  return read(() => {
    const spec = new JsonReader(resource.spec ?? {}, "spec");
    return spec.object("controllers")?.object("node")?.filled("syncLabels");
  }, undefined);
}
