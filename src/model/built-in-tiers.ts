// Lists the tiers that exist in every cluster, in evaluation order. Users cannot change or delete them.

export const BUILT_IN_TIERS = {
  "kube-admin": { order: 1000, defaultAction: "Pass" },
  default: { order: 1_000_000, defaultAction: "Deny" },
  "kube-baseline": { order: 10_000_000, defaultAction: "Pass" },
} as const;
export const isBuiltInTier = (name: string): name is keyof typeof BUILT_IN_TIERS => Object.hasOwn(BUILT_IN_TIERS, name);
