import { describe, expect, test } from "bun:test";
import { ParsedSelector } from "../selector/selector.ts";
import { readStored, stored } from "../testing/read.ts";
import { countSliceMembers, readEndpointSlice } from "./endpoint-slice.ts";
import { readService } from "./kubernetes-service.ts";
import { readLiveMigration } from "./live-migration.ts";
import { readProfileLabels } from "./profile.ts";
import { ignoreUnreadable, type OnUnreadable } from "./unreadable.ts";

type Case = readonly [name: string, given: unknown, want: unknown, problems?: readonly string[]];

function check(read: (json: unknown, onUnreadable: OnUnreadable) => unknown, cases: readonly Case[]): void {
  for (const [name, given, want, problems = []] of cases)
    test(name, () => {
      const found: string[] = [];
      expect(read(given, ({ message }) => found.push(message))).toEqual(want);
      expect<readonly string[]>(found).toEqual(problems);
    });
}

describe("readService", () => {
  const minimal = {
    namespace: "",
    name: "",
    type: "",
    clusterIps: [],
    externalIps: [],
    loadBalancerIp: "",
    loadBalancerIngressIps: [],
    ports: [],
    externalTrafficPolicy: "",
    ipFamilies: [],
  };
  check(readService, [
    ["minimal", {}, minimal],
    ["null counts as unset", { spec: { clusterIPs: null, ports: null }, status: null }, minimal],
    [
      "complete",
      {
        metadata: { namespace: "ns", name: "s" },
        spec: {
          type: "LoadBalancer",
          clusterIP: "10.1.0.1",
          clusterIPs: ["10.1.0.1", "fd00::1"],
          externalIPs: ["192.0.2.1"],
          loadBalancerIP: "192.0.2.2",
          ports: [{ protocol: "UDP", port: 53, nodePort: 30053 }, {}],
          externalTrafficPolicy: "Local",
          ipFamilies: ["IPv4", "IPv6"],
        },
        status: { loadBalancer: { ingress: [{ ip: "192.0.2.3" }, { hostname: "lb.example.org" }] } },
      },
      {
        namespace: "ns",
        name: "s",
        type: "LoadBalancer",
        clusterIps: ["10.1.0.1", "fd00::1"],
        externalIps: ["192.0.2.1"],
        loadBalancerIp: "192.0.2.2",
        loadBalancerIngressIps: ["192.0.2.3"],
        ports: [
          { protocol: "UDP", port: 53, nodePort: 30053 },
          { protocol: "", port: 0, nodePort: 0 },
        ],
        externalTrafficPolicy: "Local",
        ipFamilies: ["IPv4", "IPv6"],
      },
    ],
    ["one cluster IP", { spec: { clusterIP: "None" } }, { ...minimal, clusterIps: ["None"] }],
    [
      "wrong types",
      { spec: { type: 5, clusterIPs: "x", ports: [{ port: "80" }] }, status: { loadBalancer: [] } },
      minimal,
      [
        "spec.clusterIPs: want a list",
        "spec.type: want text",
        "status.loadBalancer: want an object",
        "spec.ports[0].port: want a number",
      ],
    ],
    ["object of the wrong type", 5, minimal, ["value: want an object"]],
  ]);
});

describe("readEndpointSlice", () => {
  const minimal = { namespace: "", service: undefined, addressType: "", endpoints: [], ports: [] };
  const endpoints = [{ addresses: ["10.0.0.1", "rubbish"], nodeName: "n1", conditions: { ready: false } }, {}];
  const read = [
    { addresses: ["10.0.0.1"], nodeName: "n1", isReady: false },
    { addresses: [], nodeName: undefined, isReady: true },
  ];
  check(readEndpointSlice, [
    ["minimal", {}, minimal],
    ["null counts as unset", { endpoints: null, ports: null, spec: {} }, minimal],
    [
      "complete",
      {
        metadata: { namespace: "ns", labels: { "kubernetes.io/service-name": "s" } },
        addressType: "IPv4",
        endpoints,
        ports: [{ port: 80 }, { protocol: "UDP", port: 53 }, { name: "any" }],
        spec: {},
      },
      {
        namespace: "ns",
        service: "s",
        addressType: "IPv4",
        endpoints: read,
        ports: [
          { protocol: "TCP", port: 80 },
          { protocol: "UDP", port: 53 },
        ],
      },
    ],
    ["fields in a spec", { spec: { endpoints } }, { ...minimal, endpoints: read }],
    [
      "wrong types",
      { endpoints: [{ addresses: "x" }], ports: [5], addressType: 5 },
      minimal,
      ["addressType: want text", "endpoints[0].addresses: want a list", "ports[0]: want an object"],
    ],
  ]);

  test("members are all ports of all addresses", () => {
    const slice = (ports: readonly object[]) =>
      readEndpointSlice({ endpoints: [{ addresses: ["10.0.0.1", "10.0.0.2"] }], ports }, ignoreUnreadable);
    expect(countSliceMembers(slice([]))).toBe(2);
    expect(countSliceMembers(slice([{ port: 80 }, { port: 81 }]))).toBe(4);
  });
});

describe("readLiveMigration", () => {
  const minimal = { uid: "", source: undefined, target: undefined, targetSelector: undefined };
  const read = (spec: unknown, onUnreadable: OnUnreadable) =>
    readLiveMigration(stored("LiveMigration", { spec }), onUnreadable);
  const identifier = { orchestratorID: "openstack", hostname: "h", workloadID: "w", endpointID: "e" };
  const workload = { orchestrator: "openstack", host: "h", workload: "w" };
  check(read, [
    ["minimal", {}, minimal],
    [
      "a workload has no endpoint",
      { source: { workload: identifier } },
      { ...minimal, source: { ...workload, endpoint: "" } },
    ],
    [
      "complete",
      { source: { workloadEndpoint: identifier }, target: { workloadEndpoint: identifier, selector: "has(a)" } },
      {
        uid: "",
        source: { ...workload, endpoint: "e" },
        target: { ...workload, endpoint: "e" },
        targetSelector: ParsedSelector.parse("has(a)"),
      },
    ],
    [
      "unreadable selector",
      { target: { selector: "((" } },
      minimal,
      [expect.stringContaining("spec.target.selector: want a selector") as unknown as string],
    ],
    [
      "wrong types",
      { source: { workload: { workloadID: 5 } }, target: "x" },
      minimal,
      ["spec.target: want an object", "spec.source.workload.workloadID: want text"],
    ],
  ]);
  test("the UID is that of the resource", () =>
    expect(readLiveMigration(stored("LiveMigration", { metadata: { uid: "u" } }), ignoreUnreadable).uid).toBe("u"));
});

describe("readProfileLabels", () => {
  const cases: readonly (readonly [spec: unknown, want: object, problems: readonly string[]])[] = [
    [{}, {}, []],
    [{ labelsToApply: { a: "b" } }, { a: "b" }, []],
    [{ labelsToApply: { a: 5 } }, {}, ["spec.labelsToApply.a: want text"]],
    [{ labelsToApply: [] }, {}, ["spec.labelsToApply: want an object"]],
    [5, {}, ["spec: want an object"]],
  ];
  for (const [spec, value, problems] of cases)
    test(JSON.stringify(spec), () =>
      expect<unknown>(readStored(readProfileLabels, stored("Profile", { spec }))).toEqual({ value, problems }),
    );
});
