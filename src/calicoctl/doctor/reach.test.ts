// Tests the checks that pods get addresses and reach each other: pools without addresses, missing routes, stopped processes.
import { describe, expect, test } from "bun:test";
import { parseCidr } from "../../lib/ip/ip.ts";
import type { Resource } from "../../model/index.ts";
import { healthy, link, node, peer, pool, PODS, resource, session, THREE } from "../testing/healthy.ts";
import { examine } from "./examine.ts";
import { clusterFacts, type HostFacts, type KernelRoute } from "./facts.ts";

const look = (resources: readonly Resource[], id: string, host?: HostFacts) =>
  examine(clusterFacts(resources), host).findings.filter((each) => each.id === id);

describe("pools", () => {
  test("all pools disabled: no pod gets an address", () => {
    const [found, ...more] = look([pool("pods", "10.65.0.0/16", { disabled: true }), ...THREE], "no-pool-for-node");
    expect(more).toEqual([]);
    expect(found).toMatchObject({ severity: "error", evidence: ["IPPool(pods) is disabled"] });
    expect(found?.problem).toContain("n1, n2 and n3");
    expect(found?.fix).toContain(`calicoctl patch ippool pods -p '{"spec":{"disabled":false}}'`);
  });

  test("a selector that does not match one node", () => {
    const some = pool("pods", "10.65.0.0/16", { nodeSelector: "rack == 'a'" });
    const nodes = [node("n1", "10.0.0.1/24", {}, { rack: "a" }), node("n2", "10.0.0.2/24")];
    const [found] = look([some, ...nodes], "no-pool-for-node");
    expect(found).toMatchObject({ node: "n2", evidence: ["IPPool(pods) is for nodes with rack == 'a'"] });
    expect(look([some, PODS, ...nodes], "no-pool-for-node")).toEqual([]);
    expect(look(THREE, "no-pool-for-node")).toEqual([]); // a cluster of hosts only
  });

  test("a pool without free addresses, and one that is nearly full", () => {
    const fill = (available: number) =>
      examine(
        clusterFacts([PODS, ...THREE], [], {
          fill: new Map([[parseCidr("10.65.0.0/16"), { capacity: 65536, available }]]),
          outsidePools: [],
        }),
      ).findings;
    expect(fill(0)).toMatchObject([{ id: "pool-full", severity: "error" }]);
    expect(fill(100)).toMatchObject([{ id: "pool-full", severity: "warning" }]);
    expect(fill(6000)).toEqual([]);
  });
});

describe("routes into other nodes' blocks", () => {
  const block = parseCidr("10.65.7.0/26");
  const affinity = { host: "n2", cidr: block, affinity: { state: "confirmed", deleted: false } } as const;
  const via = (destination: string, type: KernelRoute["type"] = "unicast"): KernelRoute => ({
    type,
    destination: parseCidr(destination),
  });
  const seen = (route: KernelRoute | undefined, state = "up", spec: object = {}) =>
    examine(clusterFacts([pool("pods", "10.65.0.0/16", spec), ...THREE], [affinity]), {
      ...healthy,
      blockRoutes: new Map([[block, route]]),
      birds: {
        4: {
          routerId: "10.0.0.1",
          sessions: [session("10.0.0.2", { state, bgpState: state === "up" ? "Established" : "Active" })],
        },
        6: undefined,
      },
    }).findings.filter(({ id }) => id === "no-route-to-block");

  test("a rejecting route is reported with the command that deletes it, regardless of the session's state", () => {
    for (const type of ["blackhole", "prohibit", "unreachable", "throw"] as const)
      for (const state of ["up", "start"])
        expect(seen(via("10.65.7.0/26", type), state)).toMatchObject([
          {
            severity: "error",
            problem: expect.stringContaining(`n1 rejects packets to 10.65.7.0/26 of n2: a route of type ${type}`),
            fix: `ip route del ${type} 10.65.7.0/26`,
          },
        ]);
    // A route with a shorter prefix is correct: it rejects packets to blocks that no node has.
    expect(seen(via("10.65.0.0/16", "blackhole"), "start")).toEqual([]);
  });

  test("the session is up, but the route is missing", () => {
    for (const route of [undefined, via("0.0.0.0/0"), via("10.65.0.0/16", "blackhole")]) {
      const [found] = seen(route);
      expect(found?.problem).toContain("no route to 1 block of pool pods on n2");
      expect(found?.evidence[0]).toStartWith("10.65.7.0/26 of n2: ");
    }
    expect(seen(via("10.65.7.0/26"))).toEqual([]);
    expect(seen(via("10.65.0.0/16"))).toEqual([]); // an aggregate is sufficient
  });

  test("a pool that is not announced is reported; a session that is down has its own finding", () => {
    expect(seen(undefined, "up", { disableBGPExport: true })[0]).toMatchObject({
      setting: "IPPool(pods) spec.disableBGPExport: false",
    });
    expect(seen(undefined, "start")).toEqual([]);
    expect(seen(undefined, "start", { vxlanMode: "Always" })[0]?.cause).toContain("Felix programs these routes");
  });
});

test("if a route is missing, BGPFilters of peers are evidence", () => {
  const cidr = parseCidr("10.65.7.0/26");
  const found = examine(
    clusterFacts(
      [
        PODS,
        ...THREE,
        resource("BGPFilter", "none", { importV4: [{ action: "Reject" }] }),
        peer("all", { nodeSelector: "all()", peerSelector: "all()", filters: ["none"] }),
      ],
      [{ host: "n2", cidr, affinity: { state: "confirmed", deleted: false } }],
    ),
    {
      ...healthy,
      blockRoutes: new Map([[cidr, undefined]]),
      birds: {
        4: { routerId: "10.0.0.1", sessions: [session("10.0.0.2", { state: "up", bgpState: "Established" })] },
        6: undefined,
      },
    },
  ).findings.find(({ id }) => id === "no-route-to-block");
  expect(found?.evidence).toContain("BGPPeer all passes routes through BGPFilter none");
});

test("one wrong node address is reported once, not once per session", () => {
  const host: HostFacts = {
    ...healthy,
    links: [link("eth0", "10.0.0.7/24")],
    birds: { 4: { routerId: "1.1.1.1", sessions: [session("10.0.0.2", {}), session("10.0.0.3", {})] }, 6: undefined },
  };
  const ids = examine(clusterFacts([PODS, ...THREE]), host).findings.map(({ id }) => id);
  expect(ids).toEqual(["address-not-on-host"]);
});

test("a stopped process is reported with the command that continues it", () => {
  const parts = [
    { name: "felix", isRunning: false, isStuck: true, detail: "its process 7 is stopped", fix: "kill -CONT 7" },
  ];
  expect(look([PODS, ...THREE], "part-not-running", { ...healthy, parts })).toMatchObject([
    { problem: "felix is running but does nothing on n1", fix: "kill -CONT 7" },
  ]);
});
