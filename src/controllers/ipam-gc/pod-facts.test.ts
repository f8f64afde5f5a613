import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../lib/ip.ts";
import { keeps, podFacts } from "./pod-facts.ts";

const A = "10.65.0.1" as IpAddress;
const pod = (status: object = {}, spec: object = {}, annotations: Record<string, string> = {}) =>
  podFacts({
    metadata: { name: "p", namespace: "ns1", annotations },
    spec: { nodeName: "n1", containers: [], ...spec },
    status,
  } as never);

describe("TC-K17 whether a pod keeps an address", () => {
  const running = { phase: "Running", podIP: A, podIPs: [{ ip: A }] };
  const cases: readonly [string, ReturnType<typeof pod>, string | undefined, boolean][] = [
    ["it has it", pod(running), "n1", true],
    ["it has another", pod({ podIP: "10.65.0.2" }), "n1", false],
    ["it has none yet", pod({ phase: "Pending" }), "n1", true],
    ["it runs on another node", pod(running), "n2", false],
    ["it runs on another node, and that of the address is gone", pod(running), undefined, true],
    ["it has not been scheduled again", pod({ phase: "Pending" }, { nodeName: undefined }), "n1", true],
    ["it was evicted", pod({ ...running, phase: "Failed", reason: "Evicted" }), "n1", false],
    ["it has succeeded", pod({ ...running, phase: "Succeeded" }), "n1", false],
    ["it has failed", pod({ ...running, phase: "Failed" }), "n1", false],
    ["it uses the host's network", pod({ podIP: "10.0.0.1" }, { hostNetwork: true }), "n1", false],
  ];
  for (const [name, facts, node, want] of cases) test(`TC-K17 ${name}`, () => expect(keeps(facts, A, node)).toBe(want));

  test("TC-K17 addresses of further networks count", () => {
    const text = JSON.stringify([{ name: "extra", ips: ["10.65.9.9"] }]);
    const facts = pod({ podIP: "10.65.0.2" }, {}, { "k8s.v1.cni.cncf.io/network-status": text });
    expect(keeps(facts, "10.65.9.9" as IpAddress, "n1")).toBe(true);
    const broken = pod({ podIP: "10.65.0.2" }, {}, { "k8s.v1.cni.cncf.io/network-status": "{" });
    expect(keeps(broken, "10.65.9.9" as IpAddress, "n1")).toBe(false);
  });
});
