// Converts Felix's settings to the settings of the calculation graph.
import { computeEncapsulation, type Encapsulation, type GraphSettings } from "../calc/index.ts";
import type { FelixConfig, Pool } from "../model/index.ts";
import { toRawConfig } from "./datastore-config.ts";

export interface GraphPlan {
  readonly settings: GraphSettings;
  /** The tunnels that the pools require at startup. Felix restarts when they change. */
  readonly encapsulation: Encapsulation;
}

export function planGraph(config: FelixConfig, pools: readonly Pool[]): GraphPlan {
  const programsRoutes = (restrictedValue: string) =>
    ["Enabled", restrictedValue].includes(config.ProgramClusterRoutes);
  const overrides = {
    ...(config.IpInIpEnabled !== "auto" && { ipipEnabled: config.IpInIpEnabled }),
    ...(config.VXLANEnabled !== "auto" && { vxlanEnabled: config.VXLANEnabled }),
    programsNoEncapRoutes: programsRoutes("EnabledNoEncapOnly"),
  };
  const encapsulation = computeEncapsulation(pools, overrides);
  const vxlan = encapsulation.vxlanEnabled || encapsulation.vxlanEnabledV6;
  const needsRoutes =
    vxlan ||
    config.BPFEnabled ||
    config.WireguardEnabled ||
    config.WireguardEnabledV6 ||
    encapsulation.noEncapNeeded ||
    (encapsulation.ipipEnabled && programsRoutes("EnabledIPIPOnly"));
  return {
    encapsulation,
    settings: {
      ...overrides,
      host: config.FelixHostname,
      // As Calico does for an external dataplane driver. The internal dataplane leaves out covered prefixes itself.
      omitNestedPrefixes: config.NFTablesMode !== "Disabled" && !config.UseInternalDataplaneDriver,
      routes: !needsRoutes ? "none" : config.RouteSource === "WorkloadIPs" ? "workloads" : "ipam",
      vteps: vxlan,
      ambientMesh: config.IstioAmbientMode === "Enabled",
      toRawConfig,
    },
  };
}
