// Declares the settings of routes and routing tables.
import { address, routeTableRange, routeTableRanges } from "./network-types.ts";
import { anyCase, choice, flag, integer, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";

const priority = integer(1, 2147483646);

export const routingSettings = {
  RouteSource: setting(
    "routeSource",
    anyCase("WorkloadIPs", "CalicoIPAM"),
    "CalicoIPAM",
    "Whether routes to other nodes are computed from IPAM blocks or from the addresses of workloads",
  ),
  ProgramClusterRoutes: setting(
    "programClusterRoutes",
    choice("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"),
    "EnabledIPIPOnly",
    "Which routes to other nodes Felix programs instead of BIRD. Felix always programs those over VXLAN",
  ),
  RouteSyncDisabled: setting("routeSyncDisabled", flag, "false", "Do not program routes, only policy"),
  RouteRefreshInterval: setting(
    "routeRefreshInterval",
    seconds,
    "90",
    "Interval at which routes are read back and repaired. 0 disables it",
  ),
  RemoveExternalRoutes: setting(
    "removeExternalRoutes",
    flag,
    "true",
    "Remove routes of other programs from workload interfaces",
  ),
  DeviceRouteSourceAddress: setting(
    "deviceRouteSourceAddress",
    address(4),
    "",
    "Source address of the host for IPv4 packets to its workloads. Unset: chosen by the kernel",
  ),
  DeviceRouteSourceAddressIPv6: setting(
    "deviceRouteSourceAddressIPv6",
    address(6),
    "",
    "Source address of the host for IPv6 packets to its workloads. Unset: chosen by the kernel",
  ),
  DeviceRouteProtocol: setting("deviceRouteProtocol", integer(), "3", "Protocol number of Felix's routes"),
  RouteTableRange: setting(
    "routeTableRange",
    routeTableRange,
    "",
    "Routing tables that Felix can use, from 1 to 250. Replaced by RouteTableRanges",
    { isFatal: true },
  ),
  RouteTableRanges: setting(
    "routeTableRanges",
    routeTableRanges,
    "",
    "Routing tables that Felix can use, such as `1-250,1000-2000`. Unset: 1-250",
    { isFatal: true },
  ),
  IPv4NormalRoutePriority: setting("ipv4NormalRoutePriority", priority, "1024", "Metric of IPv4 routes to workloads"),
  IPv4ElevatedRoutePriority: setting(
    "ipv4ElevatedRoutePriority",
    priority,
    "512",
    "Metric of IPv4 routes to a virtual machine while it migrates to this node",
  ),
  IPv6NormalRoutePriority: setting("ipv6NormalRoutePriority", priority, "1024", "Metric of IPv6 routes to workloads"),
  IPv6ElevatedRoutePriority: setting(
    "ipv6ElevatedRoutePriority",
    priority,
    "512",
    "Metric of IPv6 routes to a virtual machine while it migrates to this node",
  ),
  LiveMigrationRouteConvergenceTime: setting(
    "liveMigrationRouteConvergenceTime",
    seconds,
    "30",
    "Time after a migration until the routes get their normal metric again",
  ),
  LocalSubnetL2Reachability: setting(
    "localSubnetL2Reachability",
    choice("Disabled", "PodsAndLoadBalancers"),
    "Disabled",
    "Answer ARP and neighbour discovery for addresses of pods and load balancers that are in the host's own subnet",
  ),
  LocalSubnetL2ReachabilityRefreshInterval: setting(
    "localSubnetL2ReachabilityRefreshInterval",
    seconds,
    "120",
    "Interval at which these addresses are announced again. 0 disables it",
  ),
};
