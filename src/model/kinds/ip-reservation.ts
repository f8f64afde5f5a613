// Defines the kind IPReservation: addresses that automatic assignment does not use.
import { isNetwork } from "../validation/formats.ts";
import { field, list, matching, object } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

// Calico 3.28 accepted an address without a mask and stored it; later versions and the Kubernetes API reject it. Stored ones
// are still read: IPAM counts such an address as a range of one (src/ipam/assign/reservations.ts).
const cidr = () =>
  matching((text) => text.includes("/") && isNetwork(text), "want a CIDR, such as 10.0.0.0/29 or 10.0.0.7/32", {
    format: "cidr",
  });
const spec = object({ reservedCIDRs: field(list(cidr())) });
export type IPReservationResource = ResourceFor<"IPReservation", typeof spec>;

export default defineKind({
  kind: "IPReservation",
  description: "Addresses that automatic assignment does not use. Existing assignments are not affected.",
  spec,
});
