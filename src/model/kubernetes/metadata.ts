// Reads the metadata of Kubernetes objects.
import type { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Labels, Metadata } from "../resource.ts";
import { convertUid } from "./uid.ts";

export interface ObjectNames {
  readonly name: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly annotations: Labels;
}

export function namesOf(object: JsonReader): ObjectNames {
  const metadata = object.object("metadata") ?? object.fail("metadata", "an object");
  return {
    name: metadata.filled("name") ?? metadata.fail("name", "the object's name"),
    namespace: metadata.text("namespace") ?? "",
    labels: metadata.map("labels") ?? {},
    annotations: metadata.map("annotations") ?? {},
  };
}

/**
 * Returns UID, creation time and revision of the object from which a resource is derived.
 * @param uid `converted` if the resource has its own UID, see `convertUid`
 */
export function originOf(object: JsonReader, uid: "same" | "converted"): Partial<Metadata> {
  const metadata = object.object("metadata");
  const own = metadata?.filled("uid");
  const creationTimestamp = metadata?.filled("creationTimestamp");
  const resourceVersion = metadata?.filled("resourceVersion");
  return {
    ...(own === undefined ? {} : { uid: uid === "same" ? own : convertUid(own) }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
    ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
  };
}
