// Reads the selector and types of a policy, which define to which endpoints and directions it applies. The update
// processor converts the rules.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { DEFAULT_TIER } from "../keys/policy-names.ts";
import type { Policy } from "../stored/derived.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface PolicyTarget {
  readonly tier: string;
  /** As stored, without the condition for the policy's namespace. */
  readonly selector: string;
  readonly types: Policy["types"];
}

/** @param json the spec of a Calico policy */
export function readPolicyTarget(json: unknown, onUnreadable: OnUnreadable): PolicyTarget {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(json ?? {}, "spec"), undefined) ?? new JsonReader({}, "spec");
  return {
    tier: read(() => spec.filled("tier"), undefined) ?? DEFAULT_TIER,
    selector: read(() => spec.filled("selector"), undefined) ?? "all()",
    types: read(() => policyTypesIn(spec), ["ingress"]),
  };
}

/** Returns the given types, otherwise those for which the policy has rules; without rules, ingress. */
export function policyTypesIn(spec: JsonReader): Policy["types"] {
  const stated = spec.texts("types");
  if (stated.length > 0)
    return stated.map((type) => {
      const lower = type.toLowerCase();
      return lower === "ingress" || lower === "egress" ? lower : spec.fail("types", "Ingress or Egress");
    });
  if (spec.list("egress").length === 0) return ["ingress"];
  return spec.list("ingress").length > 0 ? ["ingress", "egress"] : ["egress"];
}
