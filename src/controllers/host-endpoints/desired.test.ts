import { describe, expect, test } from "bun:test";
import type { Resource } from "../../model/index.ts";
import type { HostEndpointTemplate } from "../configuration.ts";
import { desiredHostEndpoints } from "./desired.ts";

const node = (given: { name?: string; labels?: Record<string, string>; spec?: object } = {}): Resource =>
  ({
    apiVersion: "projectcalico.org/v3",
    kind: "Node",
    metadata: { name: given.name ?? "n1", labels: given.labels ?? { role: "worker" } },
    spec: given.spec ?? {
      bgp: { ipv4Address: "10.0.0.1/24", ipv6Address: "fd00::1/64", ipv4IPIPTunnelAddr: "10.65.0.1" },
      ipv4VXLANTunnelAddr: "10.65.0.2",
      ipv6VXLANTunnelAddr: "fd65::2",
      wireguard: { interfaceIPv4Address: "10.65.0.3", interfaceIPv6Address: "fd65::3" },
      addresses: [
        { address: "10.0.0.1/24", type: "CalicoNodeIP" },
        { address: "192.0.2.1", type: "ExternalIP" },
        { address: "10.0.0.9", type: "InternalIP" },
        { address: "nonsense", type: "InternalIP" },
      ],
      interfaces: [
        { name: "eth0", addresses: ["10.0.0.1", "fe80::1"] },
        { name: "eth1", addresses: ["172.16.0.1"] },
        { name: "bond0", addresses: ["10.9.0.1", "172.16.5.5"] },
      ],
    },
  }) as Resource;
const withTemplates = (...templates: HostEndpointTemplate[]) =>
  ({ autoCreate: "Enabled", createDefaultHostEndpoint: "Disabled", templates }) as const;
const CREATED = { "projectcalico.org/created-by": "calico-kube-controllers" };

describe("TC-K25 the default host endpoint", () => {
  test("TC-K25 covers all interfaces with all addresses of the node, in order and without duplicates", () =>
    expect(desiredHostEndpoints(node(), { autoCreate: "Enabled" })).toEqual([
      {
        apiVersion: "projectcalico.org/v3",
        kind: "HostEndpoint",
        metadata: { name: "n1-auto-hep", labels: { role: "worker", ...CREATED } },
        spec: {
          node: "n1",
          interfaceName: "*",
          expectedIPs: [
            ...["10.0.0.1", "fd00::1", "10.65.0.1", "10.65.0.2", "fd65::2", "10.65.0.3", "fd65::3", "10.0.0.9"],
            ...["fe80::1", "172.16.0.1", "10.9.0.1", "172.16.5.5"],
          ],
          profiles: ["projectcalico-default-allow"],
        },
      },
    ] as never));

  test("TC-K25 is not created when automatic host endpoints, or the default one, are disabled", () => {
    expect(desiredHostEndpoints(node(), {})).toEqual([]);
    expect(desiredHostEndpoints(node(), { autoCreate: "Disabled" })).toEqual([]);
    expect(desiredHostEndpoints(node(), withTemplates())).toEqual([]);
  });

  test("TC-K25 a name that is too long is replaced by a hash that is a valid name", () => {
    const [endpoint] = desiredHostEndpoints(node({ name: "n".repeat(250) }), { autoCreate: "Enabled" });
    expect(endpoint?.metadata.name).toMatch(/^[a-z0-9]{30,43}-auto-hep$/);
    const [other] = desiredHostEndpoints(node({ name: `${"n".repeat(249)}m` }), { autoCreate: "Enabled" });
    expect(other?.metadata.name).not.toBe(endpoint?.metadata.name);
  });
});

describe("TC-K26 templates", () => {
  const names = (...templates: HostEndpointTemplate[]) =>
    desiredHostEndpoints(node(), withTemplates(...templates)).map(({ metadata }) => metadata.name);

  test("TC-K26 CIDRs create one endpoint with the matching addresses and no interface", () => {
    const template = { generateName: "lan", interfaceCIDRs: ["172.16.0.0/12"], nodeSelector: "all()" };
    const [endpoint] = desiredHostEndpoints(node(), withTemplates(template));
    expect(endpoint?.metadata.name).toBe("n1-lan-auto-hep");
    expect(endpoint?.spec).toEqual({
      node: "n1",
      expectedIPs: ["172.16.0.1", "172.16.5.5"],
      profiles: ["projectcalico-default-allow"],
    } as never);
    expect(names({ ...template, interfaceCIDRs: ["198.51.100.0/24"] })).toEqual([]);
  });

  test("TC-K26 a pattern creates one endpoint per matching interface, with the addresses of the interface", () => {
    const template = { generateName: "nic", interfacePattern: "^eth.*", nodeSelector: "" };
    const endpoints = desiredHostEndpoints(node(), withTemplates(template));
    expect(endpoints.map(({ metadata, spec }) => [metadata.name, spec])).toEqual([
      [
        "n1-nic-eth0-auto-hep",
        {
          node: "n1",
          interfaceName: "eth0",
          expectedIPs: ["10.0.0.1", "fe80::1"],
          profiles: ["projectcalico-default-allow"],
        },
      ],
      [
        "n1-nic-eth1-auto-hep",
        { node: "n1", interfaceName: "eth1", expectedIPs: ["172.16.0.1"], profiles: ["projectcalico-default-allow"] },
      ],
    ] as never);
  });

  test("TC-K26 a pattern and CIDRs can be combined", () =>
    expect(names({ generateName: "x", interfacePattern: "eth|bond", interfaceCIDRs: ["172.16.0.0/16"] })).toEqual([
      "n1-x-eth1-auto-hep",
      "n1-x-bond0-auto-hep",
    ]));

  test("TC-K26 only selected nodes get endpoints", () => {
    const template = { generateName: "x", interfacePattern: ".*" };
    expect(names({ ...template, nodeSelector: "role == 'worker'" })).toHaveLength(3);
    expect(names({ ...template, nodeSelector: "role == 'master'" })).toEqual([]);
  });

  test("TC-K26 labels of the template override labels of the node; annotations come only from the template", () => {
    const template = {
      generateName: "x",
      interfaceCIDRs: ["10.0.0.0/8"],
      labels: { role: "edge", tier: "1" },
      annotations: { note: "hello" },
    };
    const [endpoint] = desiredHostEndpoints(node(), withTemplates(template));
    expect(endpoint?.metadata).toMatchObject({
      labels: { role: "edge", tier: "1", ...CREATED },
      annotations: { note: "hello" },
    });
  });

  test("TC-K26 an invalid pattern selects nothing", () =>
    expect(names({ generateName: "x", interfacePattern: "(" })).toEqual([]));
});
