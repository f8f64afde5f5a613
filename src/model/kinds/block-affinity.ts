// BlockAffinity: which node a block of addresses belongs to. Written by address management alone.
import { always, choice, extra, field, flag, object, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  state: always(choice("", "confirmed", "pending", "pendingDeletion"), ""),
  node: text(),
  type: field(choice("host", "virtual")),
  cidr: text(),
  // Text in the v1 custom resource, a boolean in the v3 API.
  deleted: extra(always(flag(), false), {
    decode: (value) => (value === "true" ? true : value === "false" ? false : value),
    openapi: { type: "string", default: undefined },
  }),
});
export type BlockAffinityResource = ResourceFor<"BlockAffinity", typeof spec>;

export default defineKind({
  kind: "BlockAffinity",
  description: "Which node a block of addresses belongs to.",
  spec,
  rules: (affinity, { mode, report }) => {
    if (affinity.deleted && mode !== "stored")
      report(["deleted"], true, "deletion is asked for by deleting the object");
  },
  printerColumns: [
    { name: "CIDR", type: "string", jsonPath: ".spec.cidr" },
    { name: "Node", type: "string", jsonPath: ".spec.node" },
    { name: "Type", type: "string", jsonPath: ".spec.type" },
  ],
});
