// Defines the kind IPAMBlock: the assigned addresses of one block, and their owners. Only IPAM writes it.
import {
  always,
  bigInteger,
  field,
  flag,
  integer,
  list,
  map,
  numberMap,
  nullable,
  object,
  pointer,
  text,
} from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  cidr: text(),
  affinity: pointer(text()),
  affinityClaimTime: pointer(text()),
  allocations: list(nullable(integer(0))),
  unallocated: list(integer(0)),
  attributes: list(
    object({
      handle_id: pointer(text()),
      secondary: field(map()),
      alternateOwnerAttrs: field(map()),
      releasedAt: pointer(text()),
    }),
  ),
  sequenceNumber: always(bigInteger(), 0),
  sequenceNumberForAllocation: always(numberMap(), {}),
  deleted: always(flag(), false),
  strictAffinity: always(flag(), false),
});
export type IPAMBlockResource = ResourceFor<"IPAMBlock", typeof spec>;

export default defineKind({
  kind: "IPAMBlock",
  description: "The assigned addresses of one block, and their owners.",
  spec,
  printerColumns: [
    { name: "CIDR", type: "string", jsonPath: ".spec.cidr" },
    { name: "Affinity", type: "string", jsonPath: ".spec.affinity" },
    { name: "ClaimTime", type: "date", jsonPath: ".spec.affinityClaimTime" },
  ],
});
