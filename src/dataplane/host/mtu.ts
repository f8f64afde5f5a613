// Computes the MTUs of tunnels and workloads: the MTU of the host's interfaces minus the overhead of each tunnel.
import type { Link } from "../../kernel/index.ts";
import { type DataplaneParameters, isOnAzure } from "../parameters.ts";

export type MtuSettings = Pick<
  DataplaneParameters,
  | "MTUIfacePattern"
  | "IpInIpMtu"
  | "VXLANMTU"
  | "VXLANMTUV6"
  | "WireguardMTU"
  | "WireguardMTUV6"
  | "WireguardEnabled"
  | "WireguardEnabledV6"
  | "WireguardHostEncryptionEnabled"
  | "ClusterType"
>;

export interface Mtus {
  readonly host: number;
  readonly ipip: number;
  readonly vxlan: number;
  readonly vxlanV6: number;
  readonly wireguard: number;
  readonly wireguardV6: number;
  /** The MTU of workloads: the smallest MTU of the encapsulations in use. */
  readonly pod: number;
}

/** If no interface matches: a value that works on every cloud. */
const UNKNOWN_HOST_MTU = 1460;
/**
 * Azure fragments packets above 1400 bytes although interfaces have an MTU of 1500, and drops those with the DF bit, such as
 * WireGuard packets. https://learn.microsoft.com/azure/virtual-network/virtual-network-tcpip-performance-tuning
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
  const azureOverhead = isOnAzure(settings) && settings.WireguardHostEncryptionEnabled ? AZURE_OVERHEAD : 0;
  const encrypted = (configured: number, kind: "wireguard" | "wireguardV6") =>
    configured > 0 ? configured : of(0, kind) - azureOverhead;
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
