// Defines handle IDs and the keys of allocation attributes. They are the same as in Calico, so that Calico and calico-ts find
// each other's allocations.
import type { IpVersion } from "../lib/ip/ip.ts";

/** Keys of an allocation's attributes. */
export const ATTRIBUTE = {
  pod: "pod",
  namespace: "namespace",
  node: "node",
  type: "type",
  service: "service",
  timestamp: "timestamp",
  vmiName: "vmi-name",
  vmiUid: "vmi-uid",
  vmUid: "vm-uid",
  vmimUid: "vmim-uid",
} as const;

export type Tunnel = "ipip" | "vxlan" | "wireguard";

/** IPIP exists only for IPv4. */
export function tunnelHandle(tunnel: Tunnel, version: IpVersion, node: string): string {
  return `${tunnel}${version === 6 ? "-v6" : ""}-tunnel-addr-${node}`;
}

export function tunnelAttributeType(tunnel: Tunnel, version: IpVersion): string {
  return `${tunnel}${version === 6 ? "V6" : ""}TunnelAddress`;
}

/** True if an allocation's `type` attribute is that of a tunnel address. */
export const isTunnelType = (type: string | undefined): boolean =>
  type !== undefined && /^(ipip|vxlan|vxlanV6|wireguard|wireguardV6)TunnelAddress$/.test(type);

/** The ID of the handle that a container's addresses belong to. */
export const containerHandle = (network: string, containerId: string): string => `${network}.${containerId}`;

const MAX_HANDLE_LENGTH = 128;
const machinePrefix = (network: string): string => `${network}.vmi.`;

/** The ID of the handle that a virtual machine's addresses belong to, independent of its current pod. */
export function machineHandle(network: string, namespace: string, machine: string): string {
  const name = `${namespace}.${machine}`;
  const handle = machinePrefix(network) + name;
  if (handle.length <= MAX_HANDLE_LENGTH) return handle;
  // Hexadecimal, because the handle ID is an object name in Kubernetes. Without a dot, so that `machineOfHandle` does not
  // split it into a namespace and a name.
  return machinePrefix(network) + new Bun.CryptoHasher("sha256").update(name).digest("hex");
}

export const isMachineHandle = (network: string, handle: string): boolean => handle.startsWith(machinePrefix(network));

/** Returns the machine that a handle ID names, for any network; undefined if it names none, or contains only a digest. */
export function machineOfHandle(handle: string): { readonly namespace: string; readonly machine: string } | undefined {
  // A namespace contains no dot; a machine's name may.
  const { namespace, machine } = /^.+?\.vmi\.(?<namespace>[^.]+)\.(?<machine>.+)$/.exec(handle)?.groups ?? {};
  return namespace === undefined || machine === undefined ? undefined : { namespace, machine };
}

export function loadBalancerHandle(service: string, namespace: string, uid: string): string {
  const digest = new Bun.CryptoHasher("sha256")
    .update(`${service}-${namespace}-${uid}`.toLowerCase())
    .digest("base64url");
  return `lb-${digest.replaceAll(/[-_.]/g, "")}`;
}

/** Formats a time like Go's `Time.String`, as in allocation attributes: `2026-08-22 13:33:20.123456789 +0000 UTC`. */
export function goTimestamp(date: Date): string {
  const [day = "", time = ""] = date.toISOString().replace("Z", "").split("T");
  return `${day} ${time.replace(/\.?0+$/, "")} +0000 UTC`;
}
