// Reads the fields of a pod that the address collector needs, and decides whether the pod still uses an address.
import type { KubeObject } from "../../datastore/index.ts";
import { cidrAddress, type IpAddress, parseNetwork } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { podAddressesInUse } from "../../model/index.ts";

export interface PodFacts {
  readonly node: string;
  /** Undefined while the kubelet has reported none, and if they cannot be determined. */
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
  const { spec, status } = object as PodJson;
  const reported = [status?.podIP, ...(status?.podIPs ?? []).map(({ ip }) => ip)].some(
    (ip) => ip !== undefined && ip !== "",
  );
  const addresses = reported ? allAddresses(object) : undefined;
  return {
    node: spec?.nodeName ?? "",
    isEvicted: status?.phase === "Failed" && status.reason === "Evicted",
    addresses,
  };
}

/** @returns undefined if the addresses cannot be determined from the pod's status and annotations */
function allAddresses(pod: KubeObject): readonly IpAddress[] | undefined {
  try {
    const own = podAddressesInUse(pod).map(cidrAddress);
    return [...own, ...otherNetworks(pod.metadata.annotations?.[NETWORK_STATUS])];
  } catch {
    return undefined;
  }
}

/** Addresses on additional networks, which a meta-plugin such as Multus lists in an annotation. */
function otherNetworks(text: string | undefined): readonly IpAddress[] {
  if (text === undefined || text === "") return [];
  const networks: unknown = JSON.parse(text);
  if (!Array.isArray(networks)) throw new TypeError(`${NETWORK_STATUS}: want a list`);
  return networks.flatMap((network) => new JsonReader(network).texts("ips").map((ip) => parseNetwork(ip).address));
}

/**
 * Also true if the addresses of the pod are unknown: it may have this address, or be about to get it.
 * @param node the Kubernetes node that the address was assigned on; undefined if that node is deleted and cannot be compared
 */
export function usesAddress(pod: PodFacts, address: IpAddress, node: string | undefined): boolean {
  if (node !== undefined && pod.node !== "" && pod.node !== node) return false;
  if (pod.addresses === undefined) return true;
  return !pod.isEvicted && pod.addresses.includes(address);
}
