// Reads Tiers.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import type { Tier } from "../stored/derived.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/** If the default action cannot be read, it is Deny. */
export function readTier(resource: Resource, onUnreadable: OnUnreadable): Tier {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  const order = read(() => spec?.number("order"), undefined);
  return {
    ...(order === undefined ? {} : { order }),
    defaultAction: read(() => spec?.text("defaultAction"), undefined) === "Pass" ? "Pass" : "Deny",
  };
}
