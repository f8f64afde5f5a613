// IPReservation: addresses that are never given out from now on.
import { extra, field, list, network, object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

// A bare address is a range of one; the Kubernetes API has never taken one, and programs of the field read what is there.
const spec = object({ reservedCIDRs: field(list(extra(network(), { openapi: { format: "cidr" } }))) });
export type IPReservationResource = ResourceFor<"IPReservation", typeof spec>;

export default defineKind({
  kind: "IPReservation",
  description: "Addresses that automatic assignment leaves alone; those already given out stay.",
  spec,
});
