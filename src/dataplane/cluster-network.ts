// Ways to the other nodes, by what the pools ask for: VXLAN, IPIP, or plain routes.
import type { RouteKernel } from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import type { Manager, Reconciler } from "./manager.ts";
import { type ClusterRouteKind, ClusterRoutes } from "./managers/cluster-routes.ts";
import type { EndpointRegistry } from "./managers/endpoint-registry.ts";
import type { Mtus } from "./mtu.ts";
import type { DataplaneFacts, DataplaneParameters } from "./parameters.ts";
import { exclusiveProtocol } from "./routes/ownership.ts";
import type { RouteTable } from "./routes/route-table.ts";
import { createIpipDevice, IPIP_DEVICE } from "./tunnels/ipip.ts";
import { createVxlan, VXLAN_DEVICE } from "./tunnels/vxlan.ts";

export function createClusterNetwork(options: {
  readonly parameters: DataplaneParameters;
  readonly facts: DataplaneFacts;
  readonly mtus: Mtus;
  readonly kernel: RouteKernel;
  readonly registry: EndpointRegistry;
  readonly versions: readonly IpVersion[];
  /** None when routes are somebody else's: tunnels and their neighbours are ours all the same. */
  readonly tables: readonly RouteTable[] | undefined;
  /** For a tunnel that was made or found good. */
  readonly switchOffChecksums?: (device: string) => void;
  readonly logger: Logger;
}): { readonly managers: readonly Manager[]; readonly links: readonly Reconciler[] } {
  const { parameters, facts, mtus, kernel, registry, versions, tables, logger } = options;
  const { switchOffChecksums: afterwards } = options;
  const managers: Manager[] = [];
  const links: Reconciler[] = [];
  const exclusive = exclusiveProtocol(parameters.DeviceRouteProtocol);
  const routes = (
    kind: ClusterRouteKind,
    version: IpVersion,
    tunnel?: { interfaceName: string; mtu: number; protocol: number },
  ): ClusterRoutes | undefined => {
    const table = tables === undefined ? UNWRITTEN : tables.find((t) => t.version === version);
    if (table === undefined || !versions.includes(version)) return undefined;
    const manager = new ClusterRoutes({
      kind,
      version,
      hostname: facts.hostname,
      table,
      registry,
      exclusiveProtocol: exclusive,
      ...(tunnel === undefined ? {} : { tunnel }),
    });
    managers.push(manager);
    return manager;
  };

  for (const version of [4, 6] as const) {
    if (!(version === 4 ? facts.vxlanEnabled : facts.vxlanEnabledV6)) continue;
    const mtu = version === 4 ? mtus.vxlan : mtus.vxlanV6;
    const tunnel = { interfaceName: VXLAN_DEVICE[version], mtu, protocol: parameters.DeviceRouteProtocol };
    const manager = routes("vxlan", version, tunnel);
    if (manager === undefined) continue;
    const vxlan = createVxlan({
      version,
      hostname: facts.hostname,
      id: parameters.VXLANVNI,
      port: parameters.VXLANPort,
      mtu,
      kernel,
      registry,
      routes: manager,
      logger,
      ...(afterwards === undefined ? {} : { afterwards }),
    });
    managers.push(vxlan.manager);
    links.push(...vxlan.links);
  }

  const owns = parameters.ProgramClusterRoutes;
  if (facts.ipipEnabled) {
    if (owns === "Enabled" || owns === "EnabledIPIPOnly")
      routes("ipip", 4, { interfaceName: IPIP_DEVICE, mtu: mtus.ipip, protocol: exclusive });
    const address = parameters.IpInIpTunnelAddr;
    if (address !== "")
      links.push(
        createIpipDevice({
          mtu: mtus.ipip,
          address,
          kernel,
          logger,
          ...(afterwards === undefined ? {} : { afterwards }),
        }),
      );
  }
  if (facts.noEncapNeeded && (owns === "Enabled" || owns === "EnabledNoEncapOnly"))
    for (const version of [4, 6] as const) routes("no-encap", version);
  return { managers, links };
}

const UNWRITTEN: Pick<RouteTable, "set" | "remove"> = { set: () => {}, remove: () => {} };
