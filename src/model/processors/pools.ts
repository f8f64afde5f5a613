// IP pools as calculations need them.
import { tryParseCidr } from "../../lib/ip.ts";
import { JsonReader } from "../../lib/json-reader.ts";
import type { Pool } from "../derived.ts";
import type { PoolKey } from "../keys.ts";
import type { Resource } from "../resource.ts";
import { conflictResolving } from "./conflict-cache.ts";
import type { UpdateProcessor } from "./processor.ts";

export const poolProcessor = (): UpdateProcessor => conflictResolving(convertPool);

/** With what else decides whether a node's tunnels take their addresses from the pool. */
export const tunnelPoolProcessor = (): UpdateProcessor =>
  conflictResolving((resource) => {
    const { key, value } = convertPool(resource);
    const nodeSelector = new JsonReader(resource.spec, "spec").text("nodeSelector") ?? "";
    return { key, value: nodeSelector === "" ? value : { ...value, nodeSelector } };
  });

export function convertPool(resource: Resource): { readonly key: PoolKey; readonly value: Pool } {
  const spec = new JsonReader(resource.spec, "spec");
  const cidr = tryParseCidr(spec.text("cidr") ?? "") ?? spec.fail("cidr", "a CIDR such as 10.0.0.0/16");
  const uses = spec.texts("allowedUses");
  return {
    key: { type: "pool", cidr },
    value: {
      cidr,
      ipipMode: encapsulation(spec, "ipipMode"),
      vxlanMode: encapsulation(spec, "vxlanMode"),
      masquerade: spec.flag("natOutgoing") ?? false,
      ipam: spec.flag("disabled") !== true,
      disabled: spec.flag("disabled") ?? false,
      disableBgpExport: spec.flag("disableBGPExport") ?? false,
      assignmentMode: spec.text("assignmentMode") === "Manual" ? "Manual" : "Automatic",
      allowedUses: uses.length === 0 ? ["Workload", "Tunnel"] : uses,
    },
  };
}

function encapsulation(spec: JsonReader, name: "ipipMode" | "vxlanMode"): Pool["ipipMode"] {
  switch (spec.text(name)) {
    case undefined:
    case "":
    case "Never":
      return "";
    case "Always":
      return "always";
    case "CrossSubnet":
      return "cross-subnet";
    default:
      return spec.fail(name, "Never, Always or CrossSubnet");
  }
}
