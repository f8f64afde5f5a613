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
    expect(keeps(broken, "10.65.9.9" as IpAddress, "n1")).toBe(true);
  });

  describe("TC-K17 a running pod with an annotation that does not parse", () => {
    const other = "10.65.0.2" as IpAddress;
    for (const [name, text, keepsOthers] of [
      ["cni.projectcalico.org/floatingIPs", "1.2.3.4", false],
      ["cni.projectcalico.org/floatingIPs", "[5]", false],
      ["cni.projectcalico.org/allowedSourcePrefixes", "10.0.0.0/8", false],
      ["cni.projectcalico.org/allowedSourcePrefixes", '["10.0.0.0"]', false],
      ["qos.projectcalico.org/ingressBandwidth", "x", false],
      ["k8s.v1.cni.cncf.io/network-status", "{}", true],
      ["k8s.v1.cni.cncf.io/network-status", '[{"ips":["x"]}]', true],
      ["k8s.v1.cni.cncf.io/network-status", '[{"ips":5}]', true],
      ["k8s.v1.cni.cncf.io/network-status", "[null]", true],
    ] as const)
      test(`TC-K17 ${name}: ${text}`, () => {
        const facts = pod(running, {}, { [name]: text });
        expect([keeps(facts, A, "n1"), keeps(facts, other, "n1")]).toEqual([true, keepsOthers]);
        // What has finished still gives its address back, unless the annotation may name it.
        expect(keeps(pod({ ...running, phase: "Succeeded" }, {}, { [name]: text }), A, "n1")).toBe(keepsOthers);
      });
  });

  test("TC-K17 a pod whose reported address does not parse keeps every address", () =>
    expect(keeps(pod({ phase: "Running", podIP: "x" }), A, "n1")).toBe(true));
});
