// Tests that a check that fails does not stop the others, and the first line of the output.
import { describe, expect, test } from "bun:test";
import { meshOff } from "../testing/findings.ts";
import { healthy, link, node, PODS, resource, THREE } from "../testing/healthy.ts";
import { examine } from "./examine.ts";
import { clusterFacts, type HostFacts } from "./facts.ts";
import { headline, printExamination } from "./print.ts";

describe("a check that fails", () => {
  const failing = (name: keyof HostFacts, reason: string): HostFacts =>
    Object.defineProperty({ ...healthy, sysctl: () => "0" }, name, {
      get: () => {
        throw new Error(reason);
      },
    });

  test("on the host is reported, and the others run", () => {
    const { findings, notChecked } = examine(
      clusterFacts([PODS, ...THREE]),
      failing("blockRoutes", "look up route to 10.65.1.0: EINVAL"),
    );
    expect(notChecked).toEqual([{ check: "routes to blocks", reason: "look up route to 10.65.1.0: EINVAL" }]);
    expect(findings.map(({ id }) => id)).toContain("sysctl");
  });

  test("on the datastore is reported once for all checks that need the same resources", () => {
    const cluster = clusterFacts(
      [...THREE, node("n4", "10.0.0.3/24")],
      [],
      undefined,
      new Map([["IPPool", new Error("cannot list IPPools: forbidden")]]),
    );
    const examination = examine(cluster, { ...healthy, links: [link("eth0", "10.0.0.1/24")] });
    expect(examination.findings.map(({ id }) => id)).toEqual(["duplicate-address"]);
    const text = printExamination(examination, { source: "the datastore", nodes: ["n1"] });
    expect(text.match(/^could not check .*: cannot list IPPools: forbidden$/gm)).toHaveLength(1);
    expect(text).toContain("overlapping pools");
    expect(text).toEndWith("1 error, 0 warnings.\n");
  });

  test("keeps the findings that it made before the failure", () => {
    const broken = resource("BGPPeer", "p", { peerSelector: "has(rack)" });
    const cluster = clusterFacts([PODS, meshOff, ...THREE, broken]);
    expect(examine(cluster).findings.length).toBeGreaterThan(0);
    const only = examine(cluster, failing("links", "list links: EPERM"));
    expect(only.notChecked.map(({ reason }) => reason)).toContain("list links: EPERM");
    expect(only.findings.map(({ id }) => id)).toContain("selector-matches-nothing");
  });
});

describe("the headline", () => {
  const cases = [
    {
      name: "on a node",
      scope: { source: "the datastore", nodes: ["node1", "node2", "node3"], host: "node1" },
      want: "Examined: the datastore (3 nodes), this host (node1). Not examined: hosts node2, node3.",
    },
    {
      name: "on the only node",
      scope: { source: "the datastore", nodes: ["node1"], host: "node1" },
      want: "Examined: the datastore (1 node), this host (node1).",
    },
    {
      name: "elsewhere",
      scope: { source: "the datastore", nodes: ["node1"] },
      want: "Examined: the datastore (1 node). Not examined: host node1.",
    },
    {
      name: "of many nodes",
      scope: { source: "the datastore", nodes: Array.from({ length: 12 }, (_, i) => `n${i}`) },
      want: "Examined: the datastore (12 nodes). Not examined: hosts n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more.",
    },
  ];
  for (const { name, scope, want } of cases) test(name, () => expect(headline(scope)).toBe(want));
});
