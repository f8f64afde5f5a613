import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { usesAddress, podFacts } from "./pod-facts.ts";

const A = "10.65.0.1" as IpAddress;
const pod = (status: object = {}, spec: object = {}, annotations: Record<string, string> = {}) =>
  podFacts({
    metadata: { name: "p", namespace: "ns1", annotations },
    spec: { nodeName: "n1", containers: [], ...spec },
    status,
  } as never);

describe("TC-K17 whether a pod uses an address", () => {
  const running = { phase: "Running", podIP: A, podIPs: [{ ip: A }] };
  const assigned = (message: string) => ({
    conditions: [{ type: "cni.projectcalico.org/AddressesAssigned", status: "True", message }],
  });
  const terminating = podFacts({
    metadata: {
      name: "p",
      namespace: "ns1",
      deletionTimestamp: "2026-01-01T00:00:00Z",
      annotations: { "cni.projectcalico.org/podIP": "", "vpc.amazonaws.com/pod-ips": "" },
    },
    spec: { nodeName: "n1", containers: [] },
    status: running,
  } as never);
  const cases: readonly [string, ReturnType<typeof pod>, string | undefined, boolean][] = [
    ["it has the address", pod(running), "n1", true],
    ["it has another address", pod({ podIP: "10.65.0.2" }), "n1", false],
    ["it has no address yet", pod({ phase: "Pending" }), "n1", true],
    ["it runs on another node", pod(running), "n2", false],
    ["it runs on another node, and the node of the address is deleted", pod(running), undefined, true],
    ["it has not been scheduled again", pod({ phase: "Pending" }, { nodeName: undefined }), "n1", true],
    ["it was evicted", pod({ ...running, phase: "Failed", reason: "Evicted" }), "n1", false],
    ["it has succeeded", pod({ ...running, phase: "Succeeded" }), "n1", false],
    ["it has failed", pod({ ...running, phase: "Failed" }), "n1", false],
    [
      "it was attached again, the kubelet has not reported it yet",
      pod({ ...running, ...assigned("10.65.0.2/32") }),
      "n1",
      true,
    ],
    [
      "the plugin assigned it, the kubelet still reports another",
      pod({ podIP: "10.65.0.2", ...assigned(A) }),
      "n1",
      true,
    ],
    ["it terminates, and its annotations name no address", terminating, "n1", true],
    ["it uses the host's network", pod({ podIP: "10.0.0.1" }, { hostNetwork: true }), "n1", false],
  ];
  for (const [name, facts, node, want] of cases)
    test(`TC-K17 ${name}`, () => expect(usesAddress(facts, A, node)).toBe(want));

  test("TC-K17 addresses of additional networks are in use", () => {
    const text = JSON.stringify([{ name: "extra", ips: ["10.65.9.9"] }]);
    const facts = pod({ podIP: "10.65.0.2" }, {}, { "k8s.v1.cni.cncf.io/network-status": text });
    expect(usesAddress(facts, "10.65.9.9" as IpAddress, "n1")).toBe(true);
    const broken = pod({ podIP: "10.65.0.2" }, {}, { "k8s.v1.cni.cncf.io/network-status": "{" });
    expect(usesAddress(broken, "10.65.9.9" as IpAddress, "n1")).toBe(true);
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
        expect([usesAddress(facts, A, "n1"), usesAddress(facts, other, "n1")]).toEqual([true, keepsOthers]);
        // A finished pod does not use its address, unless the annotation may contain it.
        expect(usesAddress(pod({ ...running, phase: "Succeeded" }, {}, { [name]: text }), A, "n1")).toBe(keepsOthers);
      });
  });

  test("TC-K17 a pod whose reported address does not parse uses every address", () =>
    expect(usesAddress(pod({ phase: "Running", podIP: "x" }), A, "n1")).toBe(true));
});
