// Which addresses of Kubernetes' Services this node announces one by one: those that have something behind them here, or
// that no announced range covers.
import {
  type Cidr,
  cidrContains,
  hostCidr,
  type IpAddress,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../lib/ip.ts";
import { JsonReader } from "../lib/json-reader.ts";
import { isValueError } from "../model/index.ts";
import type { BgpConfiguration } from "./state.ts";

export interface ServiceInputs {
  /** As Kubernetes has them. */
  readonly services: Iterable<unknown>;
  readonly slices: Iterable<unknown>;
  /** How Kubernetes calls this node. */
  readonly nodeName: string;
  readonly configuration: BgpConfiguration | undefined;
  /** CALICO_ADVERTISE_CLUSTER_IPS, in place of the configured ranges. */
  readonly clusterIps?: readonly string[] | undefined;
  readonly isExcluded: boolean;
}

const TYPES: ReadonlySet<string> = new Set(["ClusterIP", "NodePort", "LoadBalancer"]);
const SERVICE_LABEL = "kubernetes.io/service-name";

export function serviceAddresses(inputs: ServiceInputs): readonly string[] {
  if (inputs.isExcluded) return [];
  const slices = slicesByService(inputs.slices);
  const found = new Set<string>();
  for (const json of inputs.services) {
    try {
      const service = readService(json);
      if (isAnnounced(service, slices.get(service.id) ?? [], inputs))
        for (const address of announcedAddresses(service, inputs)) found.add(hostCidr(address));
    } catch (error) {
      if (!isValueError(error)) throw error; // an object that makes no sense announces nothing
    }
  }
  return [...found];
}

interface Service {
  readonly id: string;
  readonly type: string;
  readonly clusterIps: readonly IpAddress[];
  readonly externalIps: readonly IpAddress[];
  readonly balancerIps: readonly IpAddress[];
  /** What the load balancer is asked for, told or not. */
  readonly wantedBalancerIps: readonly IpAddress[];
  readonly trafficPolicy: string | undefined;
  readonly families: ReadonlySet<string>;
}

function readService(json: unknown): Service {
  const service = new JsonReader(json);
  const metadata = service.object("metadata");
  const spec = service.object("spec") ?? service.fail("spec", "an object");
  const listed = spec.texts("clusterIPs");
  const clusterIps = listed.length > 0 ? listed : [spec.text("clusterIP") ?? ""];
  const ingress = service.object("status")?.object("loadBalancer")?.objects("ingress") ?? [];
  const balancerIps = addresses(ingress.flatMap((entry) => entry.filled("ip") ?? []));
  return {
    id: `${metadata?.text("namespace") ?? ""}/${metadata?.text("name") ?? ""}`,
    type: spec.filled("type") ?? "ClusterIP",
    clusterIps: addresses(clusterIps),
    externalIps: addresses(spec.texts("externalIPs")),
    balancerIps,
    wantedBalancerIps: [...addresses([spec.text("loadBalancerIP") ?? ""]), ...balancerIps],
    trafficPolicy: spec.filled("externalTrafficPolicy"),
    families: new Set(spec.texts("ipFamilies")),
  };
}

const addresses = (texts: readonly string[]): readonly IpAddress[] =>
  texts.flatMap((text) => tryParseAddress(text) ?? []);

interface Slice {
  readonly addressType: string;
  readonly readyNodes: readonly (string | undefined)[];
}

function slicesByService(slices: Iterable<unknown>): ReadonlyMap<string, readonly Slice[]> {
  const byService = new Map<string, Slice[]>();
  for (const json of slices) {
    try {
      const slice = new JsonReader(json);
      const metadata = slice.object("metadata");
      const service = `${metadata?.text("namespace") ?? ""}/${metadata?.map("labels")?.[SERVICE_LABEL] ?? ""}`;
      const ready = slice
        .objects("endpoints")
        .filter((endpoint) => endpoint.object("conditions")?.flag("ready") !== false);
      const read = {
        addressType: slice.text("addressType") ?? "",
        readyNodes: ready.map((each) => each.text("nodeName")),
      };
      const others = byService.get(service);
      if (others === undefined) byService.set(service, [read]);
      else others.push(read);
    } catch (error) {
      if (!isValueError(error)) throw error;
    }
  }
  return byService;
}

function isAnnounced(service: Service, slices: readonly Slice[], { nodeName, configuration }: ServiceInputs): boolean {
  // A service that Kubernetes has not looked for endpoints of yet has none to be told of.
  if (!TYPES.has(service.type) || service.clusterIps.length === 0 || slices.length === 0) return false;
  const ready = slices
    .filter(({ addressType }) => service.families.size === 0 || service.families.has(addressType))
    .flatMap(({ readyNodes }) => readyNodes);
  if (service.trafficPolicy === "Local") return ready.includes(nodeName);
  const isAlone = (ranges: readonly string[], ips: readonly IpAddress[]) =>
    ips.some((address) => ranges.some((range) => tryParseCidr(range) === hostCidr(address)));
  const balancerIps = service.type === "LoadBalancer" ? service.wantedBalancerIps : [];
  if (
    service.trafficPolicy === "Cluster" &&
    (isAlone(configuration?.serviceLoadBalancerIps ?? [], balancerIps) ||
      isAlone(configuration?.serviceExternalIps ?? [], service.externalIps))
  )
    return true;
  return configuration?.serviceLoadBalancerAggregation === false && ready.length > 0;
}

/** Cluster addresses where any are announced; others where a range allows them. */
function announcedAddresses(service: Service, { configuration, clusterIps }: ServiceInputs): readonly IpAddress[] {
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
