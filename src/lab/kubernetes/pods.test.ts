import { expect, test } from "bun:test";
import { labPod } from "./pods.ts";

const running = {
  metadata: { name: "web-1", namespace: "shop", labels: { app: "web" } },
  spec: { nodeName: "node2" },
  status: { phase: "Running", podIPs: [{ ip: "10.65.0.7" }] },
};

test("a running pod with its own address is a pod of the lab", () => {
  expect(labPod(running)).toEqual({
    namespace: "shop",
    name: "web-1",
    node: "node2",
    addresses: ["10.65.0.7"],
    labels: { app: "web" },
  });
});

const others: Readonly<Record<string, object>> = {
  "a pod in the host network": { spec: { ...running.spec, hostNetwork: true } },
  "a pod that is being deleted": { metadata: { ...running.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } },
  "a pod that has finished": { status: { ...running.status, phase: "Succeeded" } },
  "a pod without an address": { status: { phase: "Running" } },
};
for (const [name, change] of Object.entries(others))
  test(`${name} is not a pod of the lab`, () => {
    expect(labPod({ ...running, ...change })).toBeUndefined();
  });
