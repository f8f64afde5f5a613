import { expect, test } from "bun:test";
import {
  containerHandle,
  goTimestamp,
  isMachineHandle,
  isTunnelType,
  loadBalancerHandle,
  machineHandle,
  machineOfHandle,
  tunnelAttributeType,
  tunnelHandle,
} from "./names.ts";

test("CI-075 tunnel addresses have the same handle IDs and types as in Calico", () => {
  expect(tunnelHandle("ipip", 4, "n1")).toBe("ipip-tunnel-addr-n1");
  expect(tunnelHandle("vxlan", 4, "n1")).toBe("vxlan-tunnel-addr-n1");
  expect(tunnelHandle("vxlan", 6, "n1")).toBe("vxlan-v6-tunnel-addr-n1");
  expect(tunnelHandle("wireguard", 6, "n1")).toBe("wireguard-v6-tunnel-addr-n1");
  expect(tunnelAttributeType("wireguard", 6)).toBe("wireguardV6TunnelAddress");
  expect(isTunnelType(tunnelAttributeType("vxlan", 4))).toBe(true);
  expect(isTunnelType("pod")).toBe(false);
});

test("CI-076 a service's handle ID is a digest without punctuation", () => {
  const handle = loadBalancerHandle("Web", "shop", "UID-1");
  expect(handle).toMatch(/^lb-[A-Za-z0-9]{30,43}$/);
  expect(handle).toBe(loadBalancerHandle("web", "SHOP", "uid-1"));
});

test("CI-045 a container's handle ID consists of the network name and the container ID", () =>
  expect(containerHandle("net1", "c0")).toBe("net1.c0"));

test("CI-077 a machine's handle ID contains its name, or a digest of it if the name is too long", () => {
  expect(machineHandle("k8s-pod-network", "ns", "vm1")).toBe("k8s-pod-network.vmi.ns.vm1");
  const name = "v".repeat(128 - "net.vmi.ns.".length);
  expect(machineHandle("net", "ns", name)).toBe(`net.vmi.ns.${name}`);
  const long = machineHandle("net", "ns", `${name}v`);
  expect(long).toMatch(/^net\.vmi\.[0-9a-f]{64}$/);
  expect(long).not.toBe(machineHandle("net", "ns", `${name}w`));
  expect(
    [long, "net.vmi.ns.vm", "net.c0", "network.vmi.ns.vm"].map((handle) => isMachineHandle("net", handle)),
  ).toEqual([true, true, false, false]);
});

test("CI-077 namespace and name of a machine are parsed from its handle ID", () => {
  expect(machineOfHandle("my.net.vmi.vmi.web.1")).toEqual({ namespace: "vmi", machine: "web.1" });
  expect(machineOfHandle(machineHandle("net", "ns", "v".repeat(200)))).toBeUndefined();
  expect(machineOfHandle("net.c0")).toBeUndefined();
});

const times = [
  ["2026-08-22T13:33:20.123Z", "2026-08-22 13:33:20.123 +0000 UTC"],
  ["2026-08-22T13:33:20.120Z", "2026-08-22 13:33:20.12 +0000 UTC"],
  ["2026-08-22T13:30:00.000Z", "2026-08-22 13:30:00 +0000 UTC"],
];
for (const [iso = "", want = ""] of times)
  test(`CI-045 a time is formatted as ${want}`, () => expect(goTimestamp(new Date(iso))).toBe(want));
