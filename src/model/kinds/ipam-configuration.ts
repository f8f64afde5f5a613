// Defines the kind IPAMConfiguration: settings for the allocation of address blocks to nodes.
import { always, choice, extra, field, flag, integer, object, pointer } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";

const spec = object({
  strictAffinity: always(flag(), false),
  maxBlocksPerHost: field(extra(integer(0, 1_000_000), { openapi: { maximum: 2 ** 31 - 1 } })), // as in Calico's CRD
  autoAllocateBlocks: always(flag(), true),
  kubeVirtVMAddressPersistence: pointer(choice("Enabled", "Disabled")),
  ipCooldownSeconds: field(integer(0, 1200)),
});
export type IPAMConfigurationResource = ResourceFor<"IPAMConfiguration", typeof spec>;

export default defineKind({
  kind: "IPAMConfiguration",
  description: "Settings for the allocation of address blocks to nodes.",
  spec,
  nameRule: (name) => (name === "default" ? undefined : "there is one, named default"),
  printerColumns: [
    { name: "StrictAffinity", type: "boolean", jsonPath: ".spec.strictAffinity" },
    { name: "MaxBlocksPerHost", type: "integer", jsonPath: ".spec.maxBlocksPerHost" },
    { name: "AutoAllocateBlocks", type: "boolean", jsonPath: ".spec.autoAllocateBlocks" },
  ],
});
