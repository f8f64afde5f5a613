// Reads the labels of Profiles. Their rules are converted by the update processor.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Labels, Resource } from "../resource.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/** The labels that endpoints inherit from the profile. */
export function readProfileLabels(resource: Resource, onUnreadable: OnUnreadable): Labels {
  const read = fieldReader(onUnreadable);
  return read(() => new JsonReader(resource.spec ?? {}, "spec").map("labelsToApply"), undefined) ?? {};
}
