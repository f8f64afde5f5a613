import { expect, test } from "bun:test";
import type { EndpointIdentity } from "./identity.ts";
import { parseWireAlias, wireAlias } from "./wire-owner.ts";

const pod: EndpointIdentity = {
  orchestrator: "k8s",
  node: "n1",
  namespace: "ns1",
  containerId: "c1",
  pod: "web-0",
  endpoint: "eth0",
};

test("a wire says whose it is, and is believed only when it is ours", () => {
  expect(wireAlias("net1", pod)).toBe("calico net1 c1 ns1/web-0");
  expect(parseWireAlias(wireAlias("net1", pod))).toEqual({
    network: "net1",
    containerId: "c1",
    pod: { namespace: "ns1", name: "web-0" },
  });
  const container: EndpointIdentity = { ...pod, orchestrator: "cni", pod: "", namespace: "default" };
  expect(parseWireAlias(wireAlias("net1", container))).toEqual({ network: "net1", containerId: "c1" });
  expect(wireAlias("net1", { ...pod, containerId: "c".repeat(240) })).toBeUndefined();
  for (const alias of [
    undefined,
    "",
    "calico",
    "calico net1",
    "uplink net1 c1",
    "calico net1 c1 pod",
    "calico a b c/d e",
  ])
    expect(parseWireAlias(alias)).toBeUndefined();
});
