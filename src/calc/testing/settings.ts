// Settings for a graph that calculates only policy: no routes, tunnels or ambient mesh.
import type { GraphSettings } from "../graph.ts";

export const policySettings = (host: string): GraphSettings => ({
  host,
  omitNestedPrefixes: true,
  routes: "none",
  vteps: false,
  ambientMesh: false,
  programsNoEncapRoutes: false,
  toRawConfig: () => ({}),
});
