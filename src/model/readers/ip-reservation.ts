// Reads IPReservations.
import { type Cidr, tryParseCidr } from "../../lib/ip/ip.ts";
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { shorten } from "../../lib/shorten.ts";
import type { Resource } from "../resource.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/** Returns the addresses that are never assigned automatically. Unreadable entries do not affect the others. */
export function readReservedCidrs(resource: Resource, onUnreadable: OnUnreadable): readonly Cidr[] {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  if (spec === undefined) return [];
  return read(() => spec.list("reservedCIDRs"), []).flatMap((entry) =>
    read(() => tryParseCidr(entry) ?? spec.fail("reservedCIDRs", `CIDRs, not ${shorten(describeJson(entry))}`), []),
  );
}
