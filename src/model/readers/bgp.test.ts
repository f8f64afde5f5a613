import { describe, expect, test } from "bun:test";
import { readStored, type Stored, stored } from "../testing/read.ts";
import { readBgpConfiguration } from "./bgp-configuration.ts";
import { readBgpFilter } from "./bgp-filter.ts";
import { type BgpPeer, isForNode, readBgpPeer } from "./bgp-peer.ts";
import { ParsedSelector } from "../selector/selector.ts";
import { ignoreUnreadable } from "./unreadable.ts";

interface Case {
  readonly name: string;
  readonly given: Stored;
  readonly want: object;
  readonly problems?: readonly string[];
}

describe("readBgpPeer", () => {
  const minimal = {
    name: "x",
    nodeSelector: undefined,
    node: undefined,
    peerAddress: undefined,
    peerSelector: undefined,
    localWorkloadSelector: undefined,
    asNumber: undefined,
    localAsNumber: undefined,
    keepOriginalNextHop: false,
    nextHopMode: undefined,
    password: undefined,
    sourceAddress: "UseNodeIP",
    restartSeconds: undefined,
    keepaliveSeconds: undefined,
    numAllowedLocalAs: undefined,
    ttlSecurity: undefined,
    reachableBy: undefined,
    filters: [],
    isReversed: true,
  };
  const selector = (text: string) => ({ text, matches: expect.any(Function) });
  const cases: readonly Case[] = [
    { name: "minimal", given: {}, want: minimal },
    { name: "null and empty text count as unset", given: { spec: { node: "", peerIP: null } }, want: minimal },
    {
      name: "complete",
      given: {
        metadata: { name: "tor" },
        spec: {
          node: "n1",
          nodeSelector: "rack == 'a'",
          peerIP: "[fd00::1]:1790",
          asNumber: "1.10",
          localASNumber: 64513,
          peerSelector: "has(rr)",
          keepOriginalNextHop: true,
          nextHopMode: "Self",
          password: { secretKeyRef: { name: "s", key: "k" } },
          sourceAddress: "None",
          maxRestartTime: "90.5s",
          keepaliveTime: "200ms",
          numAllowedLocalASNumbers: 2,
          ttlSecurity: 1,
          reachableBy: "fd00::2",
          filters: ["f"],
          localWorkloadSelector: "has(a)",
          reversePeering: "Manual",
        },
      },
      want: {
        name: "tor",
        nodeSelector: selector("rack == 'a'"),
        node: "n1",
        peerAddress: { address: "fd00::1", port: 1790 },
        peerSelector: selector("has(rr)"),
        localWorkloadSelector: ParsedSelector.parse("has(a)"),
        asNumber: 65546,
        localAsNumber: 64513,
        keepOriginalNextHop: true,
        nextHopMode: "Self",
        password: { name: "s", key: "k" },
        sourceAddress: "None",
        restartSeconds: 91,
        keepaliveSeconds: 1,
        numAllowedLocalAs: 2,
        ttlSecurity: 1,
        reachableBy: "fd00::2",
        filters: ["f"],
        isReversed: false,
      },
    },
    {
      name: "unreadable fields",
      given: {
        spec: {
          peerIP: "10.0.0.1",
          asNumber: 0,
          nextHopMode: "Other",
          maxRestartTime: "soon",
          ttlSecurity: 256,
          reachableBy: "fd00::2",
          localWorkloadSelector: "((",
        },
      },
      want: { ...minimal, peerAddress: { address: "10.0.0.1", port: undefined } },
      problems: [
        "spec.localWorkloadSelector: want a selector (selector \"((\": expected a term such as has(label), label == 'value' or all() at character 3)",
        "spec.asNumber: want an AS number such as 64512 or 1.10",
        "spec.nextHopMode: want Auto, Self or Keep",
        "spec.maxRestartTime: want a duration such as 90s",
        "spec.ttlSecurity: want 0 to 255",
        "spec.reachableBy: want an IPv4 address, like peerIP",
      ],
    },
    {
      name: "wrong types",
      given: { spec: { peerIP: 5, asNumber: {}, keepOriginalNextHop: "x", password: [], filters: "f" } },
      want: minimal,
      problems: [
        "spec.peerIP: want text",
        "spec.asNumber: want text or a number",
        "spec.keepOriginalNextHop: want true or false",
        "spec.password: want an object",
        "spec.filters: want a list",
      ],
    },
  ];
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored<BgpPeer>(readBgpPeer, stored("BGPPeer", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });
});

describe("a BGPPeer applies to", () => {
  const node = { name: "n1", labels: { rack: "a" } };
  const cases: readonly (readonly [spec: unknown, isFor: boolean])[] = [
    [{}, true],
    [{ node: "n1" }, true],
    [{ node: "n2" }, false],
    [{ nodeSelector: "rack == 'a'" }, true],
    [{ nodeSelector: "rack == 'b'" }, false],
    [{ nodeSelector: "rack == 'b'", node: "n1" }, false],
    [{ nodeSelector: "((" }, false],
    [{ nodeSelector: 5 }, false],
    [{ node: 5 }, false],
    [5, false],
  ];
  for (const [spec, isFor] of cases)
    test(`${JSON.stringify(spec)}: ${isFor ? "the node" : "other nodes"}`, () =>
      expect(isForNode(readBgpPeer(stored("BGPPeer", { spec }), ignoreUnreadable), node)).toBe(isFor));
});

describe("readBgpConfiguration", () => {
  const minimal = {
    logSeverity: undefined,
    meshEnabled: undefined,
    asNumber: undefined,
    listenPort: undefined,
    bindMode: undefined,
    meshPassword: undefined,
    meshRestartSeconds: undefined,
    communities: {},
    prefixAdvertisements: [],
    ignoredInterfaces: [],
    programClusterRoutes: undefined,
    routePriority: { 4: 1024, 6: 1024 },
    serviceClusterIps: [],
    serviceExternalIps: [],
    serviceLoadBalancerIps: [],
    serviceLoadBalancerAggregation: true,
    localWorkloadPeeringIps: { 4: undefined, 6: undefined },
  };
  const cases: readonly Case[] = [
    { name: "minimal", given: {}, want: minimal },
    {
      name: "complete",
      given: {
        spec: {
          logSeverityScreen: "Debug",
          nodeToNodeMeshEnabled: true,
          asNumber: 64512,
          listenPort: 1790,
          bindMode: "NodeIP",
          nodeMeshPassword: { secretKeyRef: { name: "s", key: "k" } },
          nodeMeshMaxRestartTime: "2m",
          communities: [{ name: "c", value: "1:2" }],
          prefixAdvertisements: [{ cidr: "10.2.3.4/16", communities: ["c", "1:1"] }],
          ignoredInterfaces: ["eth*"],
          programClusterRoutes: "Enabled",
          ipv4NormalRoutePriority: 512,
          ipv6NormalRoutePriority: 513,
          serviceClusterIPs: [{ cidr: "10.96.0.0/12" }, { cidr: "FD00:96:0::/112" }, {}],
          serviceExternalIPs: [{ cidr: "10.1.2.3" }],
          serviceLoadBalancerIPs: [{ cidr: "10.3.0.0/16" }],
          serviceLoadBalancerAggregation: "Disabled",
          localWorkloadPeeringIPV4: "169.254.1.1",
          localWorkloadPeeringIPV6: "fe80::1",
        },
      },
      want: {
        logSeverity: "Debug",
        meshEnabled: true,
        asNumber: 64512,
        listenPort: 1790,
        bindMode: "NodeIP",
        meshPassword: { name: "s", key: "k" },
        meshRestartSeconds: 120,
        communities: { c: "1:2" },
        prefixAdvertisements: [{ cidr: "10.2.0.0/16", communities: ["c", "1:1"] }],
        ignoredInterfaces: ["eth*"],
        programClusterRoutes: "Enabled",
        routePriority: { 4: 512, 6: 513 },
        serviceClusterIps: ["10.96.0.0/12", "FD00:96:0::/112"],
        serviceExternalIps: ["10.1.2.3"],
        serviceLoadBalancerIps: ["10.3.0.0/16"],
        serviceLoadBalancerAggregation: false,
        localWorkloadPeeringIps: { 4: "169.254.1.1", 6: "fe80::1" },
      },
    },
    {
      name: "only unreadable entries are ignored",
      given: {
        spec: {
          listenPort: 70000,
          prefixAdvertisements: [{ communities: ["1:1"] }, { cidr: "10.2.0.0/16", communities: ["1:1"] }],
          ignoredInterfaces: ["eth0", 'x"; evil'],
          ipv4NormalRoutePriority: 0,
          serviceExternalIPs: [{ cidr: "x" }, { cidr: "10.1.0.0/16" }],
          localWorkloadPeeringIPV4: "fe80::1",
        },
      },
      want: {
        ...minimal,
        prefixAdvertisements: [{ cidr: "10.2.0.0/16", communities: ["1:1"] }],
        ignoredInterfaces: ["eth0"],
        serviceExternalIps: ["10.1.0.0/16"],
      },
      problems: [
        "spec.listenPort: want 0 to 65535",
        'spec.prefixAdvertisements[0].cidr: want a CIDR, not ""',
        'spec.ignoredInterfaces: want interface names, which may contain *, not "x\\"; evil"',
        "spec.ipv4NormalRoutePriority: want 1 to 2147483646",
        'spec.serviceExternalIPs[0].cidr: want a CIDR, not "x"',
        "spec.localWorkloadPeeringIPV4: want an IPv4 address",
      ],
    },
    {
      name: "wrong types",
      given: { spec: { asNumber: [], communities: 5, serviceClusterIPs: [5, { cidr: 5 }], bindMode: {} } },
      want: minimal,
      problems: [
        "spec.asNumber: want text or a number",
        "spec.bindMode: want text",
        "spec.communities: want a list",
        "spec.serviceClusterIPs[0]: want an object",
      ],
    },
    {
      name: "the mesh is disabled if nodeToNodeMeshEnabled cannot be read",
      given: { spec: { nodeToNodeMeshEnabled: "yes" } },
      want: { ...minimal, meshEnabled: false },
      problems: ["spec.nodeToNodeMeshEnabled: want true or false"],
    },
    {
      name: "the mesh is disabled if its password cannot be read",
      given: { spec: { nodeToNodeMeshEnabled: true, nodeMeshPassword: "x" } },
      want: { ...minimal, meshEnabled: false },
      problems: ["spec.nodeMeshPassword: want an object"],
    },
    { name: "spec of the wrong type", given: { spec: 5 }, want: minimal, problems: ["spec: want an object"] },
  ];
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored(readBgpConfiguration, stored("BGPConfiguration", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });
});

describe("readBgpFilter", () => {
  const none = { 4: [], 6: [] };
  const rule = {
    peerType: undefined,
    prefix: undefined,
    source: undefined,
    interface: undefined,
    community: undefined,
    asPathPrefix: [],
    priority: undefined,
    action: "Reject",
    operations: [],
  };
  test("minimal", () =>
    expect<unknown>(readBgpFilter(stored("BGPFilter", {}))).toEqual({
      name: "x",
      rules: { import: none, export: none },
    }));
  test("complete", () => {
    const complete = {
      action: "Accept",
      peerType: "iBGP",
      matchOperator: "In",
      cidr: "10.3.1.1/16",
      prefixLength: { min: 17 },
      source: "RemotePeers",
      interface: "*.calico",
      communities: { values: ["65000:100"] },
      asPathPrefix: [65001],
      priority: 512,
      operations: [
        { addCommunity: { value: "65000:1:2" } },
        { prependASPath: { prefix: [1, 2] } },
        { setPriority: { value: 100 } },
      ],
    };
    const spec = { importV4: [complete, { action: "Reject" }], exportV6: [{ action: "Reject" }] };
    expect<unknown>(readBgpFilter(stored("BGPFilter", { spec })).rules).toEqual({
      import: {
        4: [
          {
            peerType: "iBGP",
            prefix: { operator: "In", cidr: "10.3.0.0/16", lengths: { min: 17, max: undefined } },
            source: "RemotePeers",
            interface: "*.calico",
            community: "65000:100",
            asPathPrefix: [65001],
            priority: 512,
            action: "Accept",
            operations: [{ addCommunity: "65000:1:2" }, { prependAsPath: [1, 2] }, { setPriority: 100 }],
          },
          rule,
        ],
        6: [],
      },
      export: { 4: [], 6: [rule] },
    });
  });
  const invalid: readonly (readonly [rule: object, problem: string])[] = [
    [{}, "spec.importV4[0].action: want Accept or Reject"],
    [{ peerType: "x" }, "spec.importV4[0].peerType: want eBGP or iBGP"],
    [{ cidr: "10.0.0.0/8" }, "spec.importV4[0].cidr: want both cidr and matchOperator, or neither"],
    [{ cidr: "fd00::/64", matchOperator: "In" }, "spec.importV4[0].cidr: want an IPv4 CIDR"],
    [{ cidr: 5, matchOperator: "In" }, "spec.importV4[0].cidr: want text"],
    [{ matchOperator: "Near" }, "spec.importV4[0].matchOperator: want Equal, NotEqual, In or NotIn"],
    [
      { interface: 'x"; accept' },
      "spec.importV4[0].interface: want an interface name, in which * matches any characters",
    ],
    [
      { communities: { values: ["x"] } },
      "spec.importV4[0].communities: want a community such as 64512:100 or 64512:1:2",
    ],
    [{ asPathPrefix: ["x"] }, "spec.importV4[0].asPathPrefix: want AS numbers"],
    [
      { operations: [{}] },
      "spec.importV4[0].operations[0].addCommunity: want one of addCommunity, prependASPath, setPriority",
    ],
  ];
  for (const [given, problem] of invalid)
    test(`rejected: ${problem}`, () => {
      const importV4 = [Object.keys(given).length === 0 ? given : { action: "Accept", ...given }];
      expect(() => readBgpFilter(stored("BGPFilter", { spec: { importV4 } }))).toThrow(problem);
    });
});
