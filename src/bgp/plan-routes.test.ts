// Tests router settings, announced routes and routes programmed into the kernel.
import { describe, expect, test } from "bun:test";
import { NoSuchNode } from "./plan.ts";
import type { BgpPlan } from "./plan-types.ts";
import { hashedRouterId } from "./router-id.ts";
import { conf, n, one, planOf } from "./testing/plan-of.ts";

describe("the router", () => {
  test("NB-100 the router ID is the IPv4 address, a setting, or a hash of the name", () => {
    expect(planOf({}).routerId).toBe("10.0.0.1");
    expect(planOf({ inputs: { routerId: "1.2.3.4" } }).routerId).toBe("1.2.3.4");
    expect(hashedRouterId("nodeTest")).toBe("109.174.215.226");
    expect(hashedRouterId("Testrobin123")).toBe("207.94.5.27");
    const v6 = planOf({ nodes: { n1: { bgp: { ipv6Address: "fd00::1/64" } } } });
    expect(v6.routerId).toBe(hashedRouterId("n1"));
    const bad = planOf({ inputs: { routerId: "banana" } });
    expect([bad.routerId, bad.problems[0]?.object]).toEqual(["10.0.0.1", "CALICO_ROUTER_ID"]);
  });
  test("NB-101 NB-102 ignored interfaces", () => {
    const given = { configuration: { ignoredInterfaces: ["eth1.*", 'x"; evil'] } };
    expect(planOf(given).interfaces.ignored).toEqual(["eth1.*", "cali*", "kube-ipvs*"]);
    expect(conf(given)).toContain('interface -"eth1.*", -"cali*", -"kube-ipvs*", "*";');
  });
  test("NB-103 log severity", () => {
    const debug = (global?: string, own?: string) =>
      planOf({
        configuration: global === undefined ? undefined : { logSeverityScreen: global },
        nodeConfiguration: own === undefined ? undefined : { logSeverityScreen: own },
      }).debug.interfaces;
    expect([debug(), debug("Debug"), debug("Warning"), debug("Debug", "Info")]).toEqual([
      ["states"],
      "all",
      "off",
      ["states"],
    ]);
  });
  test("DM-131 NB-105 BIRD binds to the node's address", () => {
    expect(planOf({ configuration: { bindMode: "NodeIP" } }).listenAddress).toEqual({ 4: "10.0.0.1", 6: null });
    expect(conf({ configuration: { bindMode: "NodeIP" } })).toMatch(/local 10\.0\.0\.1 as 64512;\n\s+strict bind yes;/);
  });
  test("DM-131 NB-106 a family without an address has no BGP", () => {
    expect(conf({}, 6)).toContain("BGP is disabled for IPv6");
    expect(conf({}, 6)).not.toContain("protocol bgp");
  });
  test("NB-106 a family without an address has no filters", () => {
    const rule = { action: "Accept" };
    const filters = { f: { importV4: [rule], exportV4: [rule], importV6: [rule], exportV6: [rule] } };
    const familiesOf = (bgp: object) =>
      planOf({ nodes: { n1: { bgp } }, filters }).bgpFilters.map((each) => each.family);
    expect(familiesOf({ ipv4Address: "10.0.0.1/24" })).toEqual([4, 4]);
    expect(familiesOf({ ipv6Address: "fd00::1/64" })).toEqual([6, 6]);
    expect(familiesOf({})).toEqual([]);
  });
  test("a missing Node is an error", () => expect(() => planOf({}, "nowhere")).toThrow(NoSuchNode));
});

describe("announced routes and kernel routes", () => {
  const within = (steps: BgpPlan["bgpExport"][4]) =>
    steps.flatMap((step) => ("within" in step ? [`${step.action} ${step.within}`] : []));
  test("NB-107 NB-108 blocks are blackholes and announced as a whole; single addresses are not blackholes", () => {
    const made = planOf({
      blocks: {
        "192.168.1.0/26": "confirmed",
        "192.168.2.0/26": "pendingDeletion",
        "192.168.3.0/26": "pending",
        "192.168.4.4/32": "",
      },
    });
    expect<unknown>(made.staticBlackholes).toEqual(["192.168.1.0/26", "192.168.2.0/26"]);
    expect<unknown>(made.aggregation.map(({ block }) => block)).toEqual(["192.168.1.0/26", "192.168.4.4/32"]);
    const text = conf({ blocks: { "192.168.1.0/26": "confirmed" } });
    expect(text).toContain("route 192.168.1.0/26 blackhole;");
    expect(text).toContain("if (net = 192.168.1.0/26) then accept;");
  });
  test("NB-109 NB-110 only pools without disableBGPExport are announced", () => {
    const pools = { a: { cidr: "10.1.0.0/16" }, b: { cidr: "10.2.0.0/16", disableBGPExport: true } };
    expect(within(planOf({ pools }).bgpExport[4])).toEqual(["reject 10.2.0.0/16", "accept 10.1.0.0/16"]);
    expect(conf({ pools })).toMatch(/calico_export_to_bgp_peers\(true\);\n\s+reject;/);
  });
  test("NB-111 NB-112 NB-113 Felix programs routes over tunnels, BIRD other routes, unless Felix is configured to", () => {
    const pools = {
      a: { cidr: "10.1.0.0/16" },
      b: { cidr: "10.2.0.0/16", vxlanMode: "CrossSubnet" },
      c: { cidr: "10.3.0.0/16", ipipMode: "Always" },
    };
    const kernel = (programClusterRoutes?: string) =>
      within(
        planOf({ pools, configuration: programClusterRoutes === undefined ? undefined : { programClusterRoutes } })
          .kernelExport[4],
      );
    const plain = ["accept 10.1.0.0/16", "reject 10.2.0.0/16", "reject 10.3.0.0/16"];
    const none = ["reject 10.1.0.0/16", "reject 10.2.0.0/16", "reject 10.3.0.0/16"];
    expect([kernel(), kernel("Enabled"), kernel("EnabledNoEncapOnly")]).toEqual([plain, plain, plain]);
    expect([kernel("Disabled"), kernel("EnabledIPIPOnly")]).toEqual([none, none]);
  });
  test("NB-114 routes through tunnels are not announced to peers in the same AS, eBPF routes to no peer", () => {
    const text = conf({});
    expect(text).toContain(
      'if (internal_peer && (ifname ~ "*.cali" || ifname ~ "*.calico" || ifname ~ "tunl0")) then reject;',
    );
    expect(text).toContain('if (ifname ~ "bpf*.cali") then reject;');
  });
  test("NB-115 Felix programs routes to nodes with WireGuard", () => {
    const wireguard = { interfaceIPv4Address: "10.65.0.1" };
    const nodes = { n1: { ...n(1), wireguard }, a: { ...n(9), wireguard }, n2: { ...n(2), wireguard }, n3: n(3) };
    const hops = planOf({ nodes }).kernelExport[4].flatMap((step) => ("nextHop" in step ? [step.nextHop] : []));
    expect<unknown>(hops).toEqual(["10.0.0.2", "10.0.0.9"]);
    expect(planOf({ nodes: { ...nodes, n1: n(1) } }).kernelExport[4]).not.toContainEqual({
      nextHop: "10.0.0.2",
      action: "reject",
    });
  });
  test("NB-116 metric and local preference are converted to each other", () => {
    const given = { configuration: { ipv4NormalRoutePriority: 500 } };
    expect(one(given)).toMatchObject({
      import: { preferWhenLocalPrefAbove: 2147483147 },
      export: { defaultMetric: 500 },
    });
    expect(conf(given)).toContain("bgp_local_pref = 2147483647 - krt_metric;");
  });
  test("NB-117 communities by prefix, given as value or name; a node's own list replaces the default one", () => {
    const configuration = {
      communities: [{ name: "blue", value: "64512:1" }],
      prefixAdvertisements: [
        { cidr: "10.1.0.0/16", communities: ["blue", "64512:2:3", "nobody"] },
        { cidr: "rubbish", communities: ["1:1"] },
      ],
    };
    const made = planOf({ configuration });
    expect<unknown>(made.communities).toEqual([{ within: "10.1.0.0/16", add: ["64512:1", "64512:2:3"] }]);
    expect(made.problems).toHaveLength(2);
    expect(conf({ configuration })).toContain("bgp_large_community.add((64512, 2, 3));");
    const nodeConfiguration = { prefixAdvertisements: [{ cidr: "10.2.0.0/16", communities: ["1:1"] }] };
    expect<unknown>(planOf({ configuration, nodeConfiguration }).communities.map((each) => each.within)).toEqual([
      "10.2.0.0/16",
    ]);
  });
  test("NB-122 the kernel's routes survive restarts, and multipath routes are merged", () => {
    for (const word of ["persist;", "learn;", "merge paths on;", "graceful restart;", "metric 0;"])
      expect(conf({})).toContain(word);
    expect(conf({})).toContain("if (source = RTS_DEVICE) then reject;");
  });
});
