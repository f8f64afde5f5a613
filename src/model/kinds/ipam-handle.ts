// IPAMHandle: in which blocks a holder has addresses, and how many. Written by address management alone.
import { always, flag, numberMap, object, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({ handleID: text(), block: always(numberMap(), {}), deleted: always(flag(), false) });
export type IPAMHandleResource = ResourceFor<"IPAMHandle", typeof spec>;

export default defineKind({
  kind: "IPAMHandle",
  description: "In which blocks a holder has addresses, and how many.",
  spec,
  printerColumns: [{ name: "ID", type: "string", jsonPath: ".spec.handleID" }],
});
