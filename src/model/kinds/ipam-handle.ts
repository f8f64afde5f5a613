// Defines the kind IPAMHandle: the number of addresses that a handle has in each block. Only IPAM writes it.
import { always, flag, numberMap, object, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({ handleID: text(), block: always(numberMap(), {}), deleted: always(flag(), false) });
export type IPAMHandleResource = ResourceFor<"IPAMHandle", typeof spec>;

export default defineKind({
  kind: "IPAMHandle",
  description: "The number of addresses that a handle has in each block.",
  spec,
  printerColumns: [{ name: "ID", type: "string", jsonPath: ".spec.handleID" }],
});
