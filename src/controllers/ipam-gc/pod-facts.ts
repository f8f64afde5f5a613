// What the collector must know of a pod, and whether the pod has an address.
import type { KubeObject } from "../../datastore/index.ts";
import { type IpAddress, tryParseNetwork } from "../../lib/ip.ts";
import { workloadEndpointFromPod } from "../../model/index.ts";

export interface PodFacts {
  readonly node: string;
  /** Of its endpoints; undefined while the kubelet has reported none. */
  readonly addresses?: readonly IpAddress[];
  readonly isEvicted: boolean;
}

interface PodJson extends KubeObject {
  readonly spec?: { readonly nodeName?: string; readonly hostNetwork?: boolean };
  readonly status?: {
    readonly phase?: string;
    readonly reason?: string;
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip?: string }[];
  };
}

const NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status";

export function podFacts(object: KubeObject): PodFacts {
  const { spec, status, metadata } = object as PodJson;
  const reported = [status?.podIP, ...(status?.podIPs ?? []).map(({ ip }) => ip)].some(
    (ip) => ip !== undefined && ip !== "",
  );
  return {
    node: spec?.nodeName ?? "",
    isEvicted: status?.phase === "Failed" && status.reason === "Evicted",
    ...(reported
      ? { addresses: [...endpointAddresses(object), ...otherNetworks(metadata.annotations?.[NETWORK_STATUS])] }
      : {}),
  };
}

/** Of a pod that has finished, none. */
function endpointAddresses(pod: KubeObject): readonly IpAddress[] {
  try {
    const { ipNetworks = [] } = workloadEndpointFromPod(pod, () => {}, {}).spec;
    return ipNetworks.flatMap((network) => tryParseNetwork(network)?.address ?? []);
  } catch {
    return [];
  }
}

/** Addresses a meta-plugin gave the pod on further networks. */
function otherNetworks(text: string | undefined): readonly IpAddress[] {
  if (text === undefined) return [];
  try {
    const networks = JSON.parse(text) as readonly { readonly ips?: readonly string[] }[];
    return networks.flatMap(({ ips = [] }) => ips.flatMap((ip) => tryParseNetwork(ip)?.address ?? []));
  } catch {
    return [];
  }
}

/**
 * Whether the pod keeps the address alive. One that has no address yet may be about to get this one.
 * @param node the pod must be on; undefined when that node is gone and cannot be compared with
 */
export function keeps(pod: PodFacts, address: IpAddress, node: string | undefined): boolean {
  if (node !== undefined && pod.node !== "" && pod.node !== node) return false;
  if (pod.addresses === undefined) return true;
  return !pod.isEvicted && pod.addresses.includes(address);
}
