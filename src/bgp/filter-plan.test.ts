// Tests the conversion of BGPFilters to BIRD functions.
import { describe, expect, test } from "bun:test";
import { conf, one, planOf, tor } from "./testing/plan-of.ts";

describe("filters", () => {
  const filtered = (rules: Readonly<Record<string, readonly object[]>>, asNumber = 65100): string =>
    conf({ ...tor({ filters: ["f"], asNumber }), filters: { f: rules } });
  test("NB-118 prefixes and actions", () => {
    const text = filtered({
      importV4: [
        { action: "Reject", matchOperator: "Equal", cidr: "10.1.0.0/16" },
        { action: "Accept", matchOperator: "NotEqual", cidr: "10.2.0.0/16" },
        { action: "Reject", matchOperator: "In", cidr: "10.3.0.0/16" },
        { action: "Accept", matchOperator: "NotIn", cidr: "10.4.0.0/16" },
        { action: "Reject" },
      ],
    });
    for (const line of [
      "if ((net = 10.1.0.0/16)) then {",
      "if ((net != 10.2.0.0/16)) then {",
      "if ((net ~ 10.3.0.0/16)) then {",
      "if ((net !~ 10.4.0.0/16)) then {",
      "bgp_f_importFilterV4();",
    ])
      expect(text).toContain(line);
  });
  test("NB-119 source, interface and prefix length; an empty range of lengths never matches and is reported", () => {
    const text = filtered({
      exportV4: [
        { action: "Reject", source: "RemotePeers", interface: "*.calico" },
        { action: "Reject", matchOperator: "In", cidr: "10.0.0.0/8", prefixLength: { min: 16, max: 24 } },
        { action: "Accept", matchOperator: "NotIn", cidr: "10.0.0.0/8", prefixLength: { min: 4 } },
        { action: "Reject", matchOperator: "In", cidr: "10.66.0.0/16", prefixLength: { max: 8 } },
      ],
    });
    expect(text).toContain('if ((source = RTS_BGP) && (ifname ~ "*.calico")) then {');
    expect(text).toContain("net ~ [ 10.0.0.0/8{16,24} ]");
    expect(text).toContain("net !~ [ 10.0.0.0/8{8,32} ]");
    expect(text).not.toContain("10.66.0.0/16");
  });
  test("NB-120 peer type, communities, paths, priority and operations", () => {
    const rules = {
      importV4: [
        {
          action: "Accept",
          peerType: "iBGP",
          communities: { values: ["65000:100"] },
          asPathPrefix: [65001, 65002],
          priority: 512,
          operations: [
            { addCommunity: { value: "65000:1:2" } },
            { prependASPath: { prefix: [1, 2] } },
            { setPriority: { value: 100 } },
          ],
        },
      ],
    };
    const text = filtered(rules);
    expect(text).toContain(
      "if ((same_as) && ((65000, 100) ~ bgp_community) && (bgp_path ~ [= 65001 65002 * =]) && (bgp_local_pref = 2147483135)) then {",
    );
    expect(text).toMatch(
      /bgp_large_community\.add\(\(65000, 1, 2\)\);\n\s+bgp_path\.prepend\(2\);\n\s+bgp_path\.prepend\(1\);\n\s+bgp_local_pref = 2147483547;\n\s+accept;/,
    );
    expect(text).toContain("bgp_f_importFilterV4(false);");
    expect(filtered(rules, 64512)).toContain("bgp_f_importFilterV4(true);");
  });
  test("NB-121 long names are shortened, missing filters are ignored", () => {
    const name = "b".repeat(46);
    const given = { ...tor({ filters: [name, "gone"] }), filters: { [name]: { importV4: [{ action: "Reject" }] } } };
    expect(one(given).importFilters).toEqual([
      { function: "bgp_bbbbbbbbbbbbbbbbbbbbbbbbbbbb_6AFED5022F96DF06_importFilterV4" },
    ]);
    expect(conf(given)).toContain("function bgp_bbbb");
  });
  test("an invalid filter and its sessions are left out and reported, so that no route passes unfiltered", () => {
    const given = {
      ...tor(),
      filters: {
        f: { importV4: [{ action: "Reject", interface: 'x"; accept' }] },
        g: { importV4: [{ action: "Reject" }] },
      },
    };
    const made = planOf(given);
    expect(made.bgpFilters.map((each) => each.name)).toEqual(["g"]);
    expect(made.problems.map(({ object }) => object)).toEqual(["BGPFilter(f)"]);
    expect(made.peers).toHaveLength(1);
    const used = planOf({
      ...given,
      peers: { ...given.peers, p: { peerIP: "10.9.0.2", asNumber: 1, filters: ["f"] } },
    });
    expect<unknown>(used.peers.map(({ neighbor }) => neighbor)).toEqual(["10.9.0.1"]);
    expect(used.problems.map(({ object }) => object)).toEqual(["BGPFilter(f)", "BGPPeer p"]);
  });
});
