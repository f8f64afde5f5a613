// How large packets may be: what the host's interfaces carry, minus what each tunnel adds.
import type { Link } from "../kernel/index.ts";
import { isOnAzure } from "./parameters.ts";

export interface MtuSettings {
  readonly MTUIfacePattern: RegExp | undefined;
  readonly IpInIpMtu: number;
  readonly VXLANMTU: number;
  readonly VXLANMTUV6: number;
  readonly WireguardMTU: number;
  readonly WireguardMTUV6: number;
  readonly WireguardEnabled: boolean;
  readonly WireguardEnabledV6: boolean;
  readonly WireguardHostEncryptionEnabled: boolean;
  readonly ClusterType: string;
}

export interface Mtus {
  readonly host: number;
  readonly ipip: number;
  readonly vxlan: number;
  readonly vxlanV6: number;
  readonly wireguard: number;
  readonly wireguardV6: number;
  /** For workloads: the smallest of the encapsulations in use. */
  readonly pod: number;
}

/** Where nothing can be found out: safe on every cloud. */
const UNKNOWN_HOST_MTU = 1460;
/**
 * Azure splits packets above 1400 bytes although interfaces take 1500, and drops those that must not be split, as
 * WireGuard's. https://learn.microsoft.com/azure/virtual-network/virtual-network-tcpip-performance-tuning
 */
const AZURE_OVERHEAD = 100;
const OVERHEAD = { ipip: 20, vxlan: 50, vxlanV6: 70, wireguard: 60, wireguardV6: 80 } as const;

export function hostMtu(links: readonly Link[], pattern: RegExp | undefined): number {
  const found = links.filter((link) => link.isUp && pattern?.test(link.name) === true).map((link) => link.mtu);
  return found.length === 0 ? UNKNOWN_HOST_MTU : Math.min(...found);
}

export function detectMtus(
  links: readonly Link[],
  settings: MtuSettings,
  encapsulation: { readonly ipipEnabled: boolean; readonly vxlanEnabled: boolean; readonly vxlanEnabledV6: boolean },
): Mtus {
  const host = hostMtu(links, settings.MTUIfacePattern);
  const of = (configured: number, kind: keyof typeof OVERHEAD) => (configured > 0 ? configured : host - OVERHEAD[kind]);
  const ipip = of(settings.IpInIpMtu, "ipip");
  const vxlan = of(settings.VXLANMTU, "vxlan");
  const vxlanV6 = of(settings.VXLANMTUV6, "vxlanV6");
  const lost = isOnAzure(settings) && settings.WireguardHostEncryptionEnabled ? AZURE_OVERHEAD : 0;
  const encrypted = (configured: number, kind: "wireguard" | "wireguardV6") =>
    configured > 0 ? configured : of(0, kind) - lost;
  const wireguard = encrypted(settings.WireguardMTU, "wireguard");
  const wireguardV6 = encrypted(settings.WireguardMTUV6, "wireguardV6");
  const inUse = [
    ...(encapsulation.ipipEnabled ? [ipip] : []),
    ...(encapsulation.vxlanEnabled ? [vxlan] : []),
    ...(encapsulation.vxlanEnabledV6 ? [vxlanV6] : []),
    ...(settings.WireguardEnabled ? [wireguard] : []),
    ...(settings.WireguardEnabledV6 ? [wireguardV6] : []),
  ];
  return { host, ipip, vxlan, vxlanV6, wireguard, wireguardV6, pod: inUse.length === 0 ? host : Math.min(...inUse) };
}
