// Settings that are read, as they belong to the original's configuration, and change nothing here. Who sets one is told.
import type { FelixConfig } from "./parameters.ts";

interface Without {
  /** Set to this, it asks for nothing. */
  readonly harmless: unknown;
  readonly why: string;
}

const WITHOUT_EFFECT: Readonly<Partial<Record<keyof FelixConfig, Without>>> = {
  PolicySyncPathPrefix: {
    harmless: "",
    why: "there is no policy-sync API; HTTP matches of policies are not looked at",
  },
  AWSSrcDstCheck: { harmless: "DoNothing", why: "change the source/destination check of the instances in AWS itself" },
  SidecarAccelerationEnabled: { harmless: false, why: "there is no eBPF here" },
};

/** What to tell about settings somebody made in vain. */
export function settingsWithoutEffect(config: FelixConfig): string[] {
  const beside = config.RouteTableRange !== undefined && config.RouteTableRanges.length > 0;
  return [
    ...(beside ? ["RouteTableRange: has no effect beside RouteTableRanges"] : []),
    ...Object.entries(WITHOUT_EFFECT).flatMap(([name, { harmless, why }]) => {
      const value = config[name as keyof FelixConfig];
      return value === harmless || value === "" ? [] : [`${name}: has no effect here: ${why}`];
    }),
  ];
}
