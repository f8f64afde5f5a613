import { describe, expect, test } from "bun:test";
import { readStored, type Stored, stored } from "../testing/read.ts";
import { readHostEndpoint } from "./host-endpoint.ts";
import { readNets } from "./network-set.ts";
import { ignoreUnreadable } from "./unreadable.ts";
import {
  readServiceAccountName,
  readWorkloadAddresses,
  readWorkloadEndpoint,
  readWorkloadNameFields,
} from "./workload-endpoint.ts";

interface Case {
  readonly name: string;
  readonly given: Stored;
  readonly want: unknown;
  readonly problems?: readonly string[];
}

describe("readWorkloadEndpoint", () => {
  const interfaceName = "cali1";
  const ipNetworks = ["10.0.0.1"];
  const minimal = {
    state: "active",
    name: "cali1",
    profileIds: [],
    ipv4Nets: ["10.0.0.1/32"],
    ipv6Nets: [],
    labels: {},
    ports: [],
  };
  const cases: readonly Case[] = [
    { name: "minimal", given: { spec: { interfaceName, ipNetworks } }, want: minimal },
    { name: "without addresses", given: { spec: { interfaceName } }, want: undefined },
    {
      name: "complete",
      given: {
        metadata: { labels: { app: "web", "pcns.a": "x" }, generateName: "web-", annotations: { a: "b" } },
        spec: {
          interfaceName,
          ipNetworks: ["10.0.0.1/32", "fd00::1/128"],
          ipNATs: [
            { internalIP: "10.0.0.1", externalIP: "192.0.2.1" },
            { internalIP: "fd00::1", externalIP: "fd01::1" },
          ],
          ipv4Gateway: "169.254.1.1",
          ipv6Gateway: "fe80::1",
          profiles: ["kns.ns"],
          mac: "EE-EE-EE-EE-EE-EE",
          serviceAccountName: "sa",
          ports: [{ name: "http", protocol: "TCP", port: 80 }, { port: 81 }],
          allowSpoofedSourcePrefixes: ["10.1.0.0/16"],
          qosControls: { ingressBandwidth: 1000, dscp: "EF" },
        },
      },
      want: {
        state: "active",
        name: "cali1",
        mac: "ee:ee:ee:ee:ee:ee",
        profileIds: ["kns.ns"],
        ipv4Nets: ["10.0.0.1/32"],
        ipv6Nets: ["fd00::1/128"],
        ipv4Nat: [{ internal: "10.0.0.1", external: "192.0.2.1" }],
        ipv6Nat: [{ internal: "fd00::1", external: "fd01::1" }],
        ipv4Gateway: "169.254.1.1",
        ipv6Gateway: "fe80::1",
        labels: { app: "web", "projectcalico.org/serviceaccount": "sa" },
        ports: [{ name: "http", protocol: "tcp", port: 80 }],
        generateName: "web-",
        annotations: { a: "b" },
        allowSpoofedSourcePrefixes: ["10.1.0.0/16"],
        qosControls: { ingressBandwidth: 1000, dscp: 46 },
      },
    },
    {
      name: "only unreadable NAT entries are ignored",
      given: {
        spec: {
          interfaceName,
          ipNetworks,
          ipNATs: [{ internalIP: "x", externalIP: "192.0.2.1" }, { internalIP: 5 }, { internalIP: "10.0.0.1" }],
        },
      },
      want: minimal,
      problems: [
        "spec.ipNATs[0].internalIP: want an IP address",
        "spec.ipNATs[1].internalIP: want text",
        "spec.ipNATs[2].externalIP: want an IP address",
      ],
    },
  ];
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored(readWorkloadEndpoint, stored("WorkloadEndpoint", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });

  const invalid: readonly (readonly [field: object, problem: string])[] = [
    [{ ipNetworks: ["x"] }, "spec.ipNetworks: want CIDRs, not x"],
    [{ ipNetworks: "10.0.0.1" }, "spec.ipNetworks: want a list"],
    [{ interfaceName: "cali1 -j ACCEPT" }, "spec.interfaceName: want an interface name"],
    [{ interfaceName: 5 }, "spec.interfaceName: want text"],
    [{ mac: "x" }, "spec.mac: want an address"],
    [{ ipv4Gateway: "x" }, "spec.ipv4Gateway: want an IP address"],
    [{ profiles: [5] }, "spec.profiles[0]: want text"],
    [{ ports: [{ name: "a", port: 70000 }] }, "spec.ports[0].port: want 1 to 65535"],
    [{ qosControls: { dscp: 64 } }, "spec.qosControls.dscp: want 0 to 63"],
    [{ ipNATs: 5 }, "spec.ipNATs: want a list"],
  ];
  for (const [field, problem] of invalid)
    test(`rejected: ${JSON.stringify(field)}`, () => {
      const resource = stored("WorkloadEndpoint", { spec: { interfaceName, ipNetworks, ...field } });
      expect(() => readWorkloadEndpoint(resource, ignoreUnreadable)).toThrow(problem);
    });
});

describe("parts of a WorkloadEndpoint", () => {
  const spec = {
    node: "n1",
    orchestrator: "k8s",
    pod: "web",
    containerID: "c",
    workload: "w",
    endpoint: "eth0",
    serviceAccountName: "sa",
    ipNetworks: ["10.0.0.1/32", "x", 5, "fd00::1"],
  };
  const endpoint = stored("WorkloadEndpoint", { spec });
  const empty = stored("WorkloadEndpoint", {});
  const wrong = stored("WorkloadEndpoint", { spec: { node: 5, ipNetworks: "x", serviceAccountName: 5 } });
  const unset = {
    node: undefined,
    orchestrator: undefined,
    pod: undefined,
    containerID: undefined,
    workload: undefined,
    endpoint: undefined,
  };
  test("readWorkloadAddresses returns all addresses that can be read", () => {
    expect<unknown>(readStored(readWorkloadAddresses, endpoint).value).toEqual(["10.0.0.1", "fd00::1"]);
    expect(readStored(readWorkloadAddresses, empty)).toEqual({ value: [], problems: [] });
    expect(readStored(readWorkloadAddresses, wrong)).toEqual({
      value: [],
      problems: ["spec.ipNetworks: want a list"],
    });
  });
  test("readWorkloadNameFields", () => {
    const { serviceAccountName: _, ipNetworks: __, ...fields } = spec;
    expect<unknown>(readStored(readWorkloadNameFields, endpoint).value).toEqual(fields);
    expect(readStored(readWorkloadNameFields, empty)).toEqual({ value: unset, problems: [] });
    expect(readStored(readWorkloadNameFields, wrong)).toEqual({ value: unset, problems: ["spec.node: want text"] });
  });
  test("readServiceAccountName", () => {
    expect(readStored(readServiceAccountName, endpoint).value).toBe("sa");
    expect(readStored(readServiceAccountName, empty)).toEqual({ value: undefined, problems: [] });
    expect(readStored(readServiceAccountName, wrong).problems).toEqual(["spec.serviceAccountName: want text"]);
  });
});

describe("readHostEndpoint", () => {
  const minimal = {
    node: undefined,
    interfaceName: "",
    expectedIps: [],
    profiles: [],
    ports: [],
    dscp: undefined,
  };
  const cases: readonly Case[] = [
    { name: "minimal", given: {}, want: minimal },
    {
      name: "complete",
      given: {
        metadata: { annotations: { "qos.projectcalico.org/dscp": "CS1" } },
        spec: {
          node: "n1",
          interfaceName: "*",
          expectedIPs: ["10.0.0.1", "fd00:0::1"],
          profiles: ["p"],
          ports: [{ name: "ssh", protocol: "TCP", port: 22 }],
        },
      },
      want: {
        node: "n1",
        interfaceName: "*",
        expectedIps: ["10.0.0.1", "fd00::1"],
        profiles: ["p"],
        ports: [{ name: "ssh", protocol: "tcp", port: 22 }],
        dscp: 8,
      },
    },
    {
      name: "only unreadable entries are ignored",
      given: {
        metadata: { annotations: { "qos.projectcalico.org/dscp": "x" } },
        spec: {
          node: "a/b",
          interfaceName: "eth 0",
          expectedIPs: ["x", "10.0.0.1"],
          ports: [5, { name: "a", port: 0 }, { name: "b", port: "x" }, { name: "c", port: 1 }],
        },
      },
      want: { ...minimal, expectedIps: ["10.0.0.1"], ports: [{ name: "c", protocol: "tcp", port: 1 }] },
      problems: [
        "spec.node: want a node name without /",
        "spec.interfaceName: want an interface name of at most 15 letters, digits, _, . and -, or *",
        'spec.expectedIPs: want IP addresses, not "x"',
        "spec.ports[0]: want an object",
        "spec.ports[1].port: want 1 to 65535",
        "spec.ports[2].port: want a whole number",
        'qos.projectcalico.org/dscp: want a DSCP, not "x"',
      ],
    },
    {
      name: "wrong types",
      given: { spec: { node: 5, interfaceName: [], expectedIPs: "10.0.0.1", profiles: [5], ports: {} } },
      want: minimal,
      problems: [
        "spec.node: want text",
        "spec.interfaceName: want text",
        "spec.expectedIPs: want a list",
        "spec.profiles[0]: want text",
        "spec.ports: want a list",
      ],
    },
    { name: "spec of the wrong type", given: { spec: 5 }, want: minimal, problems: ["spec: want an object"] },
  ];
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored(readHostEndpoint, stored("HostEndpoint", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });
});

describe("readNets", () => {
  const cases: readonly (readonly [spec: unknown, want: readonly string[], problems: readonly string[]])[] = [
    [{}, [], []],
    [{ nets: ["10.0.0.1", "10.1.2.3/16", "fd00::/64"] }, ["10.0.0.1/32", "10.1.0.0/16", "fd00::/64"], []],
    [
      { nets: ["x", 5, "10.0.0.1"] },
      ["10.0.0.1/32"],
      ['spec.nets: want CIDRs, not "x"', "spec.nets: want CIDRs, not 5"],
    ],
    [{ nets: {} }, [], ["spec.nets: want a list"]],
    [5, [], ["spec: want an object"]],
  ];
  for (const [spec, value, problems] of cases)
    test(JSON.stringify(spec), () =>
      expect<unknown>(readStored(readNets, stored("NetworkSet", { spec }))).toEqual({ value, problems }),
    );
});
