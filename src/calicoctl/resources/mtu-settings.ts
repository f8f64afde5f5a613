// Lists the FelixConfiguration settings for the MTU of a tunnel, and the bytes that each tunnel adds to a packet.

export const MTU_SETTINGS = {
  vxlanMTU: { tunnel: "VXLAN", overhead: 50 },
  vxlanMTUV6: { tunnel: "VXLAN over IPv6", overhead: 70 },
  ipipMTU: { tunnel: "IP-in-IP", overhead: 20 },
  wireguardMTU: { tunnel: "WireGuard", overhead: 60 },
  wireguardMTUV6: { tunnel: "WireGuard over IPv6", overhead: 80 },
} as const;

export type MtuSetting = keyof typeof MTU_SETTINGS;
