// What the calculation must know of the settings.
import { computeEncapsulation, type Encapsulation, type GraphSettings } from "../calc/index.ts";
import type { Pool } from "../model/index.ts";
import type { FelixConfig } from "./config/index.ts";
import { toRawConfig } from "./datastore-config.ts";

export interface GraphPlan {
  readonly settings: GraphSettings;
  /** What the pools ask for at the start; when that changes the agent starts again. */
  readonly encapsulation: Encapsulation;
}

export function planGraph(config: FelixConfig, pools: readonly Pool[]): GraphPlan {
  const owns = (which: string) => ["Enabled", which].includes(config.ProgramClusterRoutes);
  const forced = {
    ...(config.IpInIpEnabled !== "auto" && { ipipEnabled: config.IpInIpEnabled }),
    ...(config.VXLANEnabled !== "auto" && { vxlanEnabled: config.VXLANEnabled }),
    ownsNoEncapRoutes: owns("EnabledNoEncapOnly"),
  };
  const encapsulation = computeEncapsulation(pools, forced);
  const vxlan = encapsulation.vxlanEnabled || encapsulation.vxlanEnabledV6;
  const needsRoutes =
    vxlan ||
    config.BPFEnabled ||
    config.WireguardEnabled ||
    config.WireguardEnabledV6 ||
    encapsulation.noEncapNeeded ||
    (encapsulation.ipipEnabled && owns("EnabledIPIPOnly"));
  return {
    encapsulation,
    settings: {
      ...forced,
      host: config.FelixHostname,
      // As Calico does for an external dataplane driver. The internal dataplane leaves out covered prefixes itself.
      withoutOverlaps: config.NFTablesMode !== "Disabled" && !config.UseInternalDataplaneDriver,
      routes: !needsRoutes ? "none" : config.RouteSource === "WorkloadIPs" ? "workloads" : "ipam",
      vteps: vxlan,
      ambientMesh: config.IstioAmbientMode === "Enabled",
      toRawConfig,
    },
  };
}
