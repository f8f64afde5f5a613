import { expect, test } from "bun:test";
import { detectMtus } from "./mtu.ts";

const link = {
  index: 2,
  name: "eth0",
  mtu: 1500,
  isUp: true,
  isRunning: true,
  isLoopback: false,
  operState: "up",
} as const;
const settings = {
  MTUIfacePattern: /^eth/,
  IpInIpMtu: 0,
  VXLANMTU: 0,
  VXLANMTUV6: 0,
  WireguardMTU: 0,
  WireguardMTUV6: 0,
  WireguardEnabled: false,
  WireguardEnabledV6: false,
  WireguardHostEncryptionEnabled: false,
  ClusterType: "",
};
const off = { ipipEnabled: false, vxlanEnabled: false, vxlanEnabledV6: false };

test("FD-148 the MTU of pods is the smallest MTU of the encapsulations in use, or the host's MTU if there are none", () => {
  expect(detectMtus([link], settings, off).pod).toBe(1500);
  expect(detectMtus([link], settings, { ...off, ipipEnabled: true, vxlanEnabled: true }).pod).toBe(1450);
  expect(detectMtus([link], { ...settings, VXLANMTU: 1300 }, { ...off, vxlanEnabled: true }).pod).toBe(1300);
  expect(detectMtus([], settings, off).host).toBe(1460);
});

test("FC-036 on Azure, the MTU with host encryption is smaller, unless it is configured", () => {
  const aks = { ...settings, ClusterType: "k8s,AKS,bgp", WireguardEnabled: true, WireguardHostEncryptionEnabled: true };
  const mtus = (of: typeof settings) => {
    const { wireguard, wireguardV6, pod } = detectMtus([link], of, off);
    return [wireguard, wireguardV6, pod];
  };
  expect(mtus(aks)).toEqual([1340, 1320, 1340]);
  expect(mtus({ ...aks, WireguardMTU: 1400 })).toEqual([1400, 1320, 1400]);
  expect(mtus({ ...aks, WireguardHostEncryptionEnabled: false })).toEqual([1440, 1420, 1440]);
  expect(mtus({ ...aks, ClusterType: "k8s,eks" })).toEqual([1440, 1420, 1440]);
});
