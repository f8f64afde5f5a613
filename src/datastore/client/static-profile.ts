// Defines the built-in profile that allows all traffic. It is not stored, always exists, and cannot be changed.
import { API_VERSION, type Resource } from "../../model/index.ts";

export const DEFAULT_ALLOW = "projectcalico-default-allow";

export const DEFAULT_ALLOW_PROFILE: Resource<"Profile"> = {
  apiVersion: API_VERSION,
  kind: "Profile",
  metadata: { name: DEFAULT_ALLOW, resourceVersion: "1" },
  spec: { ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] },
};

export const isStatic = ({ kind, name }: { readonly kind: string; readonly name: string }): boolean =>
  kind === "Profile" && name === DEFAULT_ALLOW;
