// The names under which addresses are held, and the keys of what is recorded with them: shared with the original, so
// that either program finds what the other allocated.
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

/** IPIP exists for IPv4 alone. */
export function tunnelHandle(tunnel: Tunnel, version: IpVersion, node: string): string {
  return `${tunnel}${version === 6 ? "-v6" : ""}-tunnel-addr-${node}`;
}

export function tunnelAttributeType(tunnel: Tunnel, version: IpVersion): string {
  return `${tunnel}${version === 6 ? "V6" : ""}TunnelAddress`;
}

/** Whether an allocation's `type` says that it is a tunnel's. */
export const isTunnelType = (type: string | undefined): boolean =>
  type !== undefined && /^(ipip|vxlan|vxlanV6|wireguard|wireguardV6)TunnelAddress$/.test(type);

/** Under this name a container's addresses are held. */
export const containerHandle = (network: string, containerId: string): string => `${network}.${containerId}`;

const LONGEST_HANDLE = 128;
const machinePrefix = (network: string): string => `${network}.vmi.`;

/** Under this name a virtual machine's addresses are held, whichever of its pods has them. */
export function machineHandle(network: string, namespace: string, machine: string): string {
  const name = `${namespace}.${machine}`;
  const handle = machinePrefix(network) + name;
  if (handle.length <= LONGEST_HANDLE) return handle;
  // Small letters and digits only: with Kubernetes the handle is the name of an object. No dot: it is no pair of names.
  return machinePrefix(network) + new Bun.CryptoHasher("sha256").update(name).digest("hex");
}

export const isMachineHandle = (network: string, handle: string): boolean => handle.startsWith(machinePrefix(network));

/** The machine a handle names, of whatever network; undefined when it names none, or only its digest. */
export function machineOfHandle(handle: string): { readonly namespace: string; readonly machine: string } | undefined {
  // A namespace has no dot: what follows it is all the machine's.
  const { namespace, machine } = /^.+?\.vmi\.(?<namespace>[^.]+)\.(?<machine>.+)$/.exec(handle)?.groups ?? {};
  return namespace === undefined || machine === undefined ? undefined : { namespace, machine };
}

export function loadBalancerHandle(service: string, namespace: string, uid: string): string {
  const digest = new Bun.CryptoHasher("sha256")
    .update(`${service}-${namespace}-${uid}`.toLowerCase())
    .digest("base64url");
  return `lb-${digest.replaceAll(/[-_.]/g, "")}`;
}

/** Go's rendering of a time, as allocations record it: `2026-08-22 13:33:20.123456789 +0000 UTC`. */
export function goTimestamp(date: Date): string {
  const [day = "", time = ""] = date.toISOString().replace("Z", "").split("T");
  return `${day} ${time.replace(/\.?0+$/, "")} +0000 UTC`;
}
