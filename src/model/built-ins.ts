// Objects every cluster has: the tiers, and the profile that allows everything.
import { API_VERSION } from "./resource.ts";
import type { ResourceOf } from "./resources.ts";

/** Tiers every cluster has, in their order; nobody changes or deletes them. */
export const BUILT_IN_TIERS = {
  "kube-admin": { order: 1000, defaultAction: "Pass" },
  default: { order: 1_000_000, defaultAction: "Deny" },
  "kube-baseline": { order: 10_000_000, defaultAction: "Pass" },
} as const;
export const isBuiltInTier = (name: string): name is keyof typeof BUILT_IN_TIERS => Object.hasOwn(BUILT_IN_TIERS, name);

/** Allows both ways; exists without being stored, and can be neither created, changed nor deleted. */
export const DEFAULT_ALLOW_PROFILE: ResourceOf<"Profile"> = {
  kind: "Profile",
  apiVersion: API_VERSION,
  metadata: { name: "projectcalico-default-allow", resourceVersion: "1" },
  spec: { ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] },
};
