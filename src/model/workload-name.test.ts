import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  endpointStatusFileName,
  parseWorkloadEndpointName,
  workloadEndpointName,
  workloadEndpointPrefix,
  WorkloadNameError,
  workloadNameMatches,
} from "./workload-name.ts";

describe("DM-058 the name of a workload endpoint", () => {
  const names = [
    [{ node: "node-1", orchestrator: "k8s", pod: "pod-name", endpoint: "eth0" }, "node--1-k8s-pod--name-eth0"],
    [{ node: "n", orchestrator: "cni", containerID: "a1b2", endpoint: "eth0" }, "n-cni-a1b2-eth0"],
    [{ node: "n", orchestrator: "libnetwork", endpoint: "ep-1" }, "n-libnetwork-libnetwork-ep--1"],
    [{ node: "n", orchestrator: "openstack", workload: "vm--1", endpoint: "tap" }, "n-openstack-vm----1-tap"],
  ] as const;
  for (const [fields, name] of names)
    test(name, () => {
      expect(workloadEndpointName(fields)).toBe(name);
      expect(workloadNameMatches(name, fields)).toBe(true);
      expect(workloadNameMatches(name, { node: fields.node })).toBe(true);
      expect(workloadNameMatches(name, { ...fields, endpoint: "other" })).toBe(false);
      expect(name).toStartWith(workloadEndpointPrefix(fields));
    });

  test("cannot be built if a part is missing or ends with a dash", () => {
    expect(() => workloadEndpointName({ node: "n", orchestrator: "k8s", endpoint: "e" })).toThrow(
      "pod: field should be assigned",
    );
    expect(() => workloadEndpointName({ node: "n-", orchestrator: "k8s", pod: "p", endpoint: "e" })).toThrow(
      WorkloadNameError,
    );
    expect(() => workloadEndpointPrefix({ orchestrator: "k8s" })).toThrow("node: field should be assigned");
  });

  test("has a prefix that ends at the first part that is not given", () => {
    expect(workloadEndpointPrefix({ node: "node-1" })).toBe("node--1-");
    expect(workloadEndpointPrefix({ node: "n", orchestrator: "k8s" })).toBe("n-k8s-");
    expect(workloadEndpointPrefix({ node: "n", orchestrator: "k8s", endpoint: "eth0" })).toBe("n-k8s-");
    expect(workloadEndpointPrefix({ node: "n", orchestrator: "k8s", pod: "p" })).toBe("n-k8s-p-");
  });

  for (const name of ["", "a", "a-b-c", "a-b-c-d-e", "a-b--c-d"])
    test(`does not parse: ${JSON.stringify(name)}`, () => expect(parseWorkloadEndpointName(name)).toBeUndefined());

  const part = fc.stringMatching(/^[a-z0-9]([a-z0-9.-]{0,6}[a-z0-9])?$/);
  test("property: parsing inverts building", () =>
    fc.assert(
      fc.property(part, part, part, (node, pod, endpoint) => {
        expect(parseWorkloadEndpointName(workloadEndpointName({ node, orchestrator: "k8s", pod, endpoint }))).toEqual({
          node,
          orchestrator: "k8s",
          workload: pod,
          endpoint,
        });
      }),
    ));
});

test("DM-059 the name of the status file escapes each part as in a URL path", () => {
  const key = { orchestrator: "k8s", workload: "default/pod", endpoint: "eth0" };
  expect(endpointStatusFileName(key)).toBe("k8s default%2Fpod eth0");
  expect(endpointStatusFileName({ orchestrator: "a b", workload: "$&+=:@", endpoint: "!'()*" })).toBe(
    "a%20b $&+=:@ %21%27%28%29%2A",
  );
});
