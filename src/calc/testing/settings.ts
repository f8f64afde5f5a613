// Settings for graphs of which only policy is asked.
import type { GraphSettings } from "../graph.ts";

export const policySettings = (host: string): GraphSettings => ({
  host,
  withoutOverlaps: true,
  routes: "none",
  vteps: false,
  ambientMesh: false,
  ownsNoEncapRoutes: false,
  toRawConfig: () => ({}),
});
