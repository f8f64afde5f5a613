// The fields of v3 and Kubernetes resources that calculations read. Values come validated; what is absent stays absent.
import { type IpAddress, type IpNetwork, type IpVersion, ipVersion, tryParseNetwork } from "../lib/ip.ts";
import type { Labels, Resource, SpecOf } from "../model/index.ts";

export type NodeSpec = SpecOf<"Node">;
export type BgpConfigurationSpec = SpecOf<"BGPConfiguration">;
export type BgpPeerSpec = SpecOf<"BGPPeer">;
export interface ProfileSpec {
  readonly labelsToApply?: Labels;
}
interface WorkloadIdentifier {
  readonly hostname?: string;
  readonly orchestratorID?: string;
  readonly workloadID?: string;
  readonly endpointID?: string;
}
export interface LiveMigrationSpec {
  readonly source?: { readonly workload?: WorkloadIdentifier; readonly workloadEndpoint?: WorkloadIdentifier };
  readonly target?: { readonly selector?: string; readonly workloadEndpoint?: WorkloadIdentifier };
}
export interface ServiceSpec {
  readonly type?: string;
  readonly clusterIP?: string;
  readonly clusterIPs?: readonly string[];
  readonly loadBalancerIP?: string;
  readonly externalIPs?: readonly string[];
  readonly ports?: readonly { readonly protocol?: string; readonly port?: number; readonly nodePort?: number }[];
}
export interface ServiceStatus {
  readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string }[] };
}
export interface EndpointSlice {
  readonly endpoints?: readonly { readonly addresses?: readonly string[] }[];
  readonly ports?: readonly { readonly protocol?: string; readonly port?: number }[];
}

/** The spec of a resource as its kind has it. */
export const specOf = <T>(resource: Resource): T => (resource.spec ?? {}) as T;

/** An EndpointSlice keeps its fields beside the metadata, not in a spec. */
export function endpointSliceOf(resource: Resource): EndpointSlice {
  return "endpoints" in resource || resource.spec === undefined
    ? (resource as unknown as EndpointSlice)
    : specOf<EndpointSlice>(resource);
}

/** The number of addresses and ports that the slice gives to a set of its service: every port of every address. */
export function countSliceMembers(resource: Resource): number {
  const { endpoints = [], ports = [] } = endpointSliceOf(resource);
  return endpoints.reduce((sum, { addresses = [] }) => sum + addresses.length, 0) * Math.max(1, ports.length);
}

/** The node's address of a family: the one for BGP, else its internal, else its external one. */
export function nodeAddress(spec: NodeSpec, version: IpVersion): IpNetwork | undefined {
  const bgp = version === 4 ? spec.bgp?.ipv4Address : spec.bgp?.ipv6Address;
  if (bgp !== undefined && bgp !== "") return tryParseNetwork(bgp);
  return nodeAddressOfType(spec, "InternalIP", version) ?? nodeAddressOfType(spec, "ExternalIP", version);
}

function nodeAddressOfType(spec: NodeSpec, type: string, version: IpVersion): IpNetwork | undefined {
  for (const { address, type: found } of spec.addresses ?? []) {
    const network = found === type ? tryParseNetwork(address) : undefined;
    if (network !== undefined && ipVersion(network.address) === version) return network;
  }
  return undefined;
}

export const networkText = (network: IpNetwork | undefined): string =>
  network === undefined ? "" : `${network.address}/${network.length}`;

export const addressOf = (text: string | undefined): IpAddress | undefined =>
  text === undefined || text === "" ? undefined : tryParseNetwork(text)?.address;
