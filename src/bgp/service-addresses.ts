// Selects the addresses of Kubernetes Services that this node announces individually: those with a ready endpoint on this
// node, and those that no announced range covers.
import {
  type Cidr,
  cidrContains,
  hostCidr,
  type IpAddress,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../lib/ip/ip.ts";
import {
  type BgpConfiguration,
  isValueError,
  type OnUnreadable,
  readEndpointSlice,
  readService,
  rejectUnreadable,
} from "../model/index.ts";

export interface ServiceInputs {
  /** Objects of the Kubernetes API. */
  readonly services: readonly unknown[];
  readonly slices: readonly unknown[];
  /** Name of this node in Kubernetes. */
  readonly nodeName: string;
  readonly configuration: BgpConfiguration | undefined;
  /** CALICO_ADVERTISE_CLUSTER_IPS; replaces the configured ranges. */
  readonly clusterIps?: readonly string[];
  readonly isExcluded: boolean;
}

const TYPES: ReadonlySet<string> = new Set(["ClusterIP", "NodePort", "LoadBalancer"]);

export function serviceAddresses(inputs: ServiceInputs): readonly string[] {
  if (inputs.isExcluded) return [];
  const slices = slicesByService(inputs.slices);
  const found = new Set<string>();
  for (const service of inputs.services.flatMap(servicesIn))
    if (isAnnounced(service, slices.get(service.id) ?? [], inputs))
      for (const address of announcedAddresses(service, inputs)) found.add(hostCidr(address));
  return [...found];
}

interface AnnouncedService {
  readonly id: string;
  readonly type: string;
  readonly clusterIps: readonly IpAddress[];
  readonly externalIps: readonly IpAddress[];
  readonly balancerIps: readonly IpAddress[];
  /** Assigned and requested addresses of the load balancer. */
  readonly requestedBalancerIps: readonly IpAddress[];
  readonly trafficPolicy: string;
  readonly families: ReadonlySet<string>;
}

/** An unreadable Service is not announced. */
function servicesIn(json: unknown): readonly AnnouncedService[] {
  return readOrNone(readService, json).map((service) => {
    const balancerIps = addresses(service.loadBalancerIngressIps);
    return {
      id: `${service.namespace}/${service.name}`,
      type: service.type === "" ? "ClusterIP" : service.type,
      clusterIps: addresses(service.clusterIps),
      externalIps: addresses(service.externalIps),
      balancerIps,
      requestedBalancerIps: [...addresses([service.loadBalancerIp]), ...balancerIps],
      trafficPolicy: service.externalTrafficPolicy,
      families: new Set(service.ipFamilies),
    };
  });
}

const addresses = (texts: readonly string[]): readonly IpAddress[] =>
  texts.flatMap((text) => tryParseAddress(text) ?? []);

interface Slice {
  readonly addressType: string;
  readonly readyNodes: readonly (string | undefined)[];
}

function slicesByService(slices: readonly unknown[]): ReadonlyMap<string, readonly Slice[]> {
  const byService = new Map<string, Slice[]>();
  for (const { namespace, service, addressType, endpoints } of slices.flatMap((json) =>
    readOrNone(readEndpointSlice, json),
  )) {
    const readyNodes = endpoints.filter(({ isReady }) => isReady).map(({ nodeName }) => nodeName);
    const others = byService.get(`${namespace}/${service}`);
    if (others === undefined) byService.set(`${namespace}/${service}`, [{ addressType, readyNodes }]);
    else others.push({ addressType, readyNodes });
  }
  return byService;
}

function readOrNone<T>(read: (json: unknown, onUnreadable: OnUnreadable) => T, json: unknown): readonly T[] {
  try {
    return [read(json, rejectUnreadable)];
  } catch (error) {
    if (!isValueError(error)) throw error;
    return [];
  }
}

function isAnnounced(
  service: AnnouncedService,
  slices: readonly Slice[],
  { nodeName, configuration }: ServiceInputs,
): boolean {
  // Without EndpointSlices, Kubernetes has not looked for endpoints yet.
  if (!TYPES.has(service.type) || service.clusterIps.length === 0 || slices.length === 0) return false;
  const ready = slices
    .filter(({ addressType }) => service.families.size === 0 || service.families.has(addressType))
    .flatMap(({ readyNodes }) => readyNodes);
  if (service.trafficPolicy === "Local") return ready.includes(nodeName);
  const hasOwnRange = (ranges: readonly string[], ips: readonly IpAddress[]) =>
    ips.some((address) => ranges.some((range) => tryParseCidr(range) === hostCidr(address)));
  const balancerIps = service.type === "LoadBalancer" ? service.requestedBalancerIps : [];
  if (
    service.trafficPolicy === "Cluster" &&
    (hasOwnRange(configuration?.serviceLoadBalancerIps ?? [], balancerIps) ||
      hasOwnRange(configuration?.serviceExternalIps ?? [], service.externalIps))
  )
    return true;
  return configuration?.serviceLoadBalancerAggregation === false && ready.length > 0;
}

/** Cluster IPs if any range of them is announced; external and load balancer IPs if a range contains them. */
function announcedAddresses(
  service: AnnouncedService,
  { configuration, clusterIps }: ServiceInputs,
): readonly IpAddress[] {
  const ranges = clusterIps ?? configuration?.serviceClusterIps ?? [];
  const allowed = (texts: readonly string[] | undefined) => {
    const cidrs = (texts ?? []).flatMap((text) => tryParseCidr(text) ?? []);
    return (address: IpAddress) =>
      cidrs.some((cidr: Cidr) => ipVersion(cidr) === ipVersion(address) && cidrContains(cidr, address));
  };
  return [
    ...(ranges.length === 0 ? [] : service.clusterIps),
    ...service.externalIps.filter(allowed(configuration?.serviceExternalIps)),
    ...service.balancerIps.filter(allowed(configuration?.serviceLoadBalancerIps)),
  ];
}
