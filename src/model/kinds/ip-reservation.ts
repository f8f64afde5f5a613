// IPReservation: addresses that are never given out from now on.
import { field, list, network, object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({ reservedCIDRs: field(list(network())) });
export type IPReservationResource = ResourceFor<"IPReservation", typeof spec>;

export default defineKind({
  kind: "IPReservation",
  description: "Addresses that automatic assignment leaves alone; those already given out stay.",
  spec,
});
