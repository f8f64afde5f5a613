import { expect, test } from "bun:test";
import { interfaceAlias, ownsInterface, parseInterfaceAlias } from "./interface-owner.ts";

const pod = { network: "net1", containerId: "c1", pod: { namespace: "ns1", name: "web-0" } };
const container = { network: "net1", containerId: "c1" };

test("an alias names the owner of an interface; any other alias does not", () => {
  expect(interfaceAlias(pod)).toBe("calico net1 c1 ns1/web-0");
  expect(parseInterfaceAlias(interfaceAlias(pod))).toEqual(pod);
  expect(parseInterfaceAlias(interfaceAlias(container))).toEqual(container);
  expect(interfaceAlias({ ...pod, containerId: "c".repeat(240) })).toBeUndefined();
  for (const alias of [
    undefined,
    "",
    "calico",
    "calico net1",
    "uplink net1 c1",
    "calico net1 c1 pod",
    "calico a b c/d e",
  ])
    expect(parseInterfaceAlias(alias)).toBeUndefined();
});

test("an alias that would be too long contains a hash of the pod instead of its name", () => {
  const long = { ...pod, containerId: "c".repeat(64), pod: { namespace: "n".repeat(63), name: "p".repeat(253) } };
  const alias = interfaceAlias(long) ?? "";
  expect(Buffer.byteLength(alias)).toBeLessThanOrEqual(255);
  const owner = parseInterfaceAlias(alias) ?? container;
  expect(owner).toEqual({
    ...container,
    containerId: long.containerId,
    podHash: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  const workload = `${long.pod.namespace}/${long.pod.name}`;
  expect(ownsInterface(owner, "k8s", workload)).toBe(true);
  expect(ownsInterface(owner, "k8s", `${workload}x`)).toBe(false);
  expect(ownsInterface(owner, "cni", workload)).toBe(false);
});

test("a workload owns an interface if its alias names the pod, or outside Kubernetes the container", () => {
  expect(ownsInterface(pod, "k8s", "ns1/web-0")).toBe(true);
  expect(ownsInterface(pod, "k8s", "ns1/web-1")).toBe(false);
  expect(ownsInterface(pod, "cni", "default/c1")).toBe(false);
  expect(ownsInterface(container, "cni", "default/c1")).toBe(true);
  expect(ownsInterface(container, "cni", "default/c2")).toBe(false);
  expect(ownsInterface(container, "k8s", "default/c1")).toBe(false);
});
