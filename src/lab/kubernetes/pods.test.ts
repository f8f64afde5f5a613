import { expect, test } from "bun:test";
import { labPod } from "./pods.ts";

const running = {
  metadata: { name: "web-1", namespace: "shop", labels: { app: "web" } },
  spec: { nodeName: "node2" },
  status: { phase: "Running", podIPs: [{ ip: "10.65.0.7" }] },
};

test("a running pod with an address of its own is a pod of the lab, whoever made it", () => {
  expect(labPod(running)).toEqual({
    namespace: "shop",
    name: "web-1",
    node: "node2",
    addresses: ["10.65.0.7"],
    labels: { app: "web" },
  });
});

const others: Readonly<Record<string, object>> = {
  "one on its node's own network": { spec: { ...running.spec, hostNetwork: true } },
  "one that is being deleted": { metadata: { ...running.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } },
  "one that has ended": { status: { ...running.status, phase: "Succeeded" } },
  "one without an address": { status: { phase: "Running" } },
};
for (const [name, change] of Object.entries(others))
  test(`${name} is none`, () => {
    expect(labPod({ ...running, ...change })).toBeUndefined();
  });
