// How large packets may be: what the host's interfaces carry, minus what each tunnel adds.
import type { Link } from "../kernel/index.ts";

export interface MtuSettings {
  readonly MTUIfacePattern: RegExp | undefined;
  readonly IpInIpMtu: number;
  readonly VXLANMTU: number;
  readonly VXLANMTUV6: number;
  readonly WireguardMTU: number;
  readonly WireguardMTUV6: number;
  readonly WireguardEnabled: boolean;
  readonly WireguardEnabledV6: boolean;
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
  const wireguard = of(settings.WireguardMTU, "wireguard");
  const wireguardV6 = of(settings.WireguardMTUV6, "wireguardV6");
  const inUse = [
    ...(encapsulation.ipipEnabled ? [ipip] : []),
    ...(encapsulation.vxlanEnabled ? [vxlan] : []),
    ...(encapsulation.vxlanEnabledV6 ? [vxlanV6] : []),
    ...(settings.WireguardEnabled ? [wireguard] : []),
    ...(settings.WireguardEnabledV6 ? [wireguardV6] : []),
  ];
  return { host, ipip, vxlan, vxlanV6, wireguard, wireguardV6, pod: inUse.length === 0 ? host : Math.min(...inUse) };
}
