// What the collector must know of a pod, and whether the pod has an address.
import type { KubeObject } from "../../datastore/index.ts";
import { cidrAddress, type IpAddress, parseNetwork } from "../../lib/ip.ts";
import { JsonReader } from "../../lib/json-reader.ts";
import { podAddresses } from "../../model/index.ts";

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
    ...(addresses === undefined ? {} : { addresses }),
  };
}

/** @returns undefined if the pod's status or annotations do not tell which addresses it has */
function allAddresses(pod: KubeObject): readonly IpAddress[] | undefined {
  try {
    const own = podAddresses(pod).map(cidrAddress);
    return [...own, ...otherNetworks(pod.metadata.annotations?.[NETWORK_STATUS])];
  } catch {
    return undefined;
  }
}

/** Addresses a meta-plugin gave the pod on further networks. */
function otherNetworks(text: string | undefined): readonly IpAddress[] {
  if (text === undefined || text === "") return [];
  const networks: unknown = JSON.parse(text);
  if (!Array.isArray(networks)) throw new TypeError(`${NETWORK_STATUS}: want a list`);
  return networks.flatMap((network) => new JsonReader(network).texts("ips").map((ip) => parseNetwork(ip).address));
}

/**
 * Whether the pod keeps the address allocated. So does a pod whose addresses are not known: it may have this one, or be
 * about to get it.
 * @param node the pod must be on; undefined when that node is gone and cannot be compared with
 */
export function keeps(pod: PodFacts, address: IpAddress, node: string | undefined): boolean {
  if (node !== undefined && pod.node !== "" && pod.node !== node) return false;
  if (pod.addresses === undefined) return true;
  return !pod.isEvicted && pod.addresses.includes(address);
}
