// Tests the calculation graph with a large cluster and a thousand changes per second.
import { expect, test } from "bun:test";
import { CalculationGraph, type GraphUpdate } from "../../../src/calc/index.ts";
import { policySettings } from "../../../src/calc/testing/settings.ts";
import type { Cidr } from "../../../src/lib/ip/ip.ts";
import { ParsedSelector } from "../../../src/model/index.ts";

const ENDPOINTS = 100_000;
const workload = (n: number, round = 0): GraphUpdate => ({
  key: {
    type: "workloadEndpoint",
    host: n < 100 ? "here" : `host-${n % 1000}`,
    orchestrator: "k8s",
    workload: `ns-${n % 100}/pod-${n}`,
    endpoint: "eth0",
  },
  value: {
    state: "active",
    name: `cali${n}`,
    profileIds: [`kns.ns-${n % 100}`],
    ipv4Nets: [`10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}/32` as Cidr],
    ipv6Nets: [],
    labels: { app: `app-${n % 500}`, round: String(round) },
    ports: [],
  },
});

const fromApp = (n: number) => ParsedSelector.parse(`app == "app-${n}"`);

test("FC-110 a hundred thousand endpoints, two thousand policies, and then a thousand changes in a second", () => {
  let messages = 0;
  const graph = new CalculationGraph(policySettings("here"), { onMessage: () => messages++ });
  for (let i = 0; i < 2000; i++)
    graph.update({
      key: { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: `policy-${i}` },
      value: {
        tier: "default",
        selector: fromApp(i % 500),
        types: ["ingress"],
        inboundRules: [{ action: "allow", source: { selector: fromApp((i * 7) % 500) }, destination: {} }],
        outboundRules: [],
      },
    });
  for (let n = 0; n < ENDPOINTS; n++) graph.update(workload(n));
  graph.setInSync();
  graph.flush();
  expect(graph.statistics.endpoints).toBe(ENDPOINTS);
  expect(messages).toBeGreaterThan(500);
  const before = process.cpuUsage();
  for (let change = 0; change < 1000; change++) {
    graph.update(workload((change * 97) % ENDPOINTS, change));
    graph.flush();
  }
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1e6).toBeLessThan(1);
});
