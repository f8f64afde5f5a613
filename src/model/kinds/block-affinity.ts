// Defines the kind BlockAffinity: the node that owns a block of addresses. Only IPAM writes it.
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
  description: "The node that owns a block of addresses.",
  spec,
  rules: (affinity, { mode, report }) => {
    if (affinity.deleted && mode !== "stored") report(["deleted"], true, "cannot be set; delete the object instead");
  },
  printerColumns: [
    { name: "CIDR", type: "string", jsonPath: ".spec.cidr" },
    { name: "Node", type: "string", jsonPath: ".spec.node" },
    { name: "Type", type: "string", jsonPath: ".spec.type" },
  ],
});
