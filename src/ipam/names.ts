// The names under which addresses are held, and the keys of what is recorded with them: shared with the original, so
// that either program finds what the other allocated.
import type { IpVersion } from "../lib/ip.ts";

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
