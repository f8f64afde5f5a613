// Creates the parts that connect this node to other nodes: VXLAN, IPIP or routes without encapsulation, as the pools require.
import type { Rtnetlink } from "../kernel/index.ts";
import type { IpVersion } from "../lib/ip/ip.ts";
import type { Logger } from "../lib/log/log.ts";
import type { Manager, Reconciler } from "./loop/manager.ts";
import { type ClusterRouteKind, ClusterRoutes } from "./managers/cluster-routes.ts";
import type { EndpointRegistry } from "./managers/endpoint-registry.ts";
import type { Mtus } from "./host/mtu.ts";
import type { DataplaneFacts, DataplaneParameters } from "./parameters.ts";
import { exclusiveProtocol } from "./routes/ownership.ts";
import type { RouteTable } from "./routes/route-table.ts";
import { createIpipDevice, IPIP_DEVICE } from "./tunnels/ipip.ts";
import { createVxlan, VXLAN_DEVICE } from "./tunnels/vxlan.ts";

export function createClusterNetwork(options: {
  readonly parameters: DataplaneParameters;
  readonly facts: DataplaneFacts;
  readonly mtus: Mtus;
  readonly kernel: Rtnetlink;
  readonly registry: EndpointRegistry;
  readonly versions: readonly IpVersion[];
  /** Undefined if Felix does not write routes. Tunnels and their neighbours are written anyway. */
  readonly tables: readonly RouteTable[] | undefined;
  /** Called after each check of a tunnel device. */
  readonly disableChecksumOffload?: (device: string) => void;
  readonly logger: Logger;
}): { readonly managers: readonly Manager[]; readonly links: readonly Reconciler[] } {
  const { parameters, facts, mtus, kernel, registry, versions, tables, logger } = options;
  const { disableChecksumOffload: onReady } = options;
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
      tunnel,
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
      onReady,
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
          onReady,
        }),
      );
  }
  if (facts.noEncapNeeded && (owns === "Enabled" || owns === "EnabledNoEncapOnly"))
    for (const version of [4, 6] as const) routes("no-encap", version);
  return { managers, links };
}

/** Ignores routes. */
const UNWRITTEN: Pick<RouteTable, "set" | "remove"> = { set: () => {}, remove: () => {} };
