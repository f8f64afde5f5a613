// Tests each check of the cluster on the smallest cluster that has the problem, and on one that does not have it.
import { describe, expect, test } from "bun:test";
import type { KindName } from "../../model/index.ts";
import { ids, look, meshOff, only } from "../testing/findings.ts";
import { healthy, link, node, peer, PODS, pool, resource, session, THREE } from "../testing/healthy.ts";
import type { HostFacts } from "./facts.ts";
import { printExamination } from "./print.ts";

test("a healthy cluster has no findings", () => {
  expect(look([PODS, ...THREE], healthy)).toEqual([]);
  expect(look([])).toEqual([]);
});

describe("nodes' addresses", () => {
  const nics = {
    interfaces: [
      { name: "eth0", addresses: ["10.0.0.1"] },
      { name: "eth1", addresses: ["10.9.0.1"] },
    ],
  };

  test("an address that no interface has, on this host and on another node", () => {
    const found = look([PODS, node("n1", "10.0.0.9/24"), THREE[1]!], healthy);
    expect(only(found, "address-not-on-host")).toMatchObject({
      node: "n1",
      address: "10.0.0.9",
      setting: "IP=autodetect",
    });
    const far = look([PODS, node("n4", "10.0.0.9/24", {}, {}, nics), THREE[1]!]);
    expect(only(far, "address-not-on-host").evidence.join()).toContain("eth1 10.9.0.1");
  });

  test("dual NIC: the Node has the address of eth1, the router is in the network of eth0", () => {
    const faulty = [
      PODS,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("rack", { peerIP: "10.0.0.254", asNumber: 65001 }),
    ];
    expect(only(look(faulty), "dual-nic")).toMatchObject({
      severity: "error",
      node: "n1",
      interface: "eth0",
      address: "10.0.0.1",
      peer: "10.0.0.254",
      setting: "IP_AUTODETECTION_METHOD=interface=eth0",
    });
    // On the host itself, the prefix lengths are known, and the state of BIRD is evidence.
    const host: HostFacts = {
      ...healthy,
      links: [link("eth0", "10.0.0.1/16"), link("eth1", "10.9.0.1/24")],
      birds: { 4: { routerId: "10.9.0.1", sessions: [session("10.0.0.254", {})] }, 6: undefined },
    };
    const found = look(faulty, host);
    expect(only(found, "dual-nic").evidence).toContain("BIRD on n1: Active");
    expect(ids(found)).not.toContain("session-down"); // reported once
  });

  test("dual NIC: no finding if the session is up, the peer is in the same network, or the kernel selects the source", () => {
    const at = (peerIP: string, more: object = {}) => [
      PODS,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("rack", { peerIP, asNumber: 65001, ...more }),
    ];
    expect(look(at("10.9.0.254"))).toEqual([]);
    expect(look(at("10.0.0.254", { sourceAddress: "None" }))).toEqual([]);
    const status = resource(
      "CalicoNodeStatus",
      "s",
      { node: "n1", classes: ["BGP"] },
      {},
      {
        status: {
          lastUpdated: "2026-01-01T00:00:00Z",
          bgp: { peersV4: [{ peerIP: "10.0.0.254", state: "Established" }] },
        },
      },
    );
    expect(look([...at("10.0.0.254"), status])).toEqual([]);
  });

  test("dual NIC: a BGPPeer for an address that the node has on its other interface", () => {
    const found = look([
      PODS,
      THREE[1]!,
      node("n1", "10.9.0.1/24", {}, {}, nics),
      peer("to-n1", { peerIP: "10.0.0.1", asNumber: 64512 }),
    ]);
    expect(found.find(({ object }) => object === "BGPPeer(to-n1)")).toMatchObject({
      id: "dual-nic",
      node: "n1",
      interface: "eth0",
      address: "10.0.0.1",
      setting: "IP_AUTODETECTION_METHOD=interface=eth0",
    });
  });

  test("one address on two nodes", () => {
    const found = look([PODS, node("n1", "10.0.0.1/24"), node("n2", "10.0.0.1/24")]);
    expect(only(found, "duplicate-address")).toMatchObject({
      address: "10.0.0.1",
      problem: "nodes n1 and n2 both have the address 10.0.0.1",
    });
    expect(ids(found)).not.toContain("duplicate-router-id");
  });

  test("one router ID on two nodes with different addresses", () => {
    const host = { ...healthy, birds: { 4: { routerId: "10.0.0.2", sessions: [] }, 6: undefined } };
    expect(only(look([PODS, ...THREE], host), "duplicate-router-id").problem).toContain("n1 and n2");
  });
});

describe("pools", () => {
  test("pools that overlap each other, node addresses, node networks or services", () => {
    expect(
      only(look([pool("a", "10.65.0.0/16"), pool("b", "10.65.1.0/24"), ...THREE]), "pools-overlap").problem,
    ).toContain("a (10.65.0.0/16)");
    expect(only(look([pool("a", "10.0.0.0/16"), ...THREE]), "pool-holds-node-addresses").evidence).toHaveLength(3);
    const docker = { ...healthy, links: [...healthy.links, link("docker0", "10.65.3.1/24")] };
    expect(only(look([PODS, ...THREE], docker), "pool-overlaps-node-network").evidence.join()).toContain("docker0");
    const pods = {
      ...healthy,
      links: [...healthy.links, link("vxlan.calico", "10.65.3.1/32"), link("cali1", "10.65.3.2/32")],
    };
    expect(look([PODS, ...THREE], pods)).toEqual([]);
    const services = resource("BGPConfiguration", "default", { serviceClusterIPs: [{ cidr: "10.65.128.0/20" }] });
    expect(only(look([PODS, services, ...THREE]), "pool-overlaps-services").problem).toContain("10.65.128.0/20");
  });

  test("fewer blocks than nodes, or all blocks claimed", () => {
    const small = pool("small", "10.65.0.0/25", { blockSize: 26 });
    expect(only(look([small, ...THREE]), "too-few-blocks")).toMatchObject({
      severity: "warning",
      setting: "IPPool spec.blockSize: 28",
    });
    const strict = resource("IPAMConfiguration", "default", { strictAffinity: true });
    expect(only(look([small, strict, ...THREE]), "too-few-blocks").severity).toBe("error");
    const four = pool("four", "10.65.0.0/24", { blockSize: 26 });
    const block = (host: string, i: number) => ({
      host,
      cidr: `10.65.0.${i * 64}/26`,
      affinity: { state: "confirmed", deleted: false } as const,
    });
    expect(look([four, ...THREE], undefined, [block("n1", 0), block("n1", 1)])).toEqual([]);
    const full = [0, 1, 2, 3].map((i) => block("n1", i));
    expect(only(look([four, ...THREE], undefined, full), "too-few-blocks").evidence.join()).toContain("n2 and n3");
    expect(
      only(look([PODS, pool("q", "10.66.0.0/16", { nodeSelector: "has(q)" }), ...THREE]), "pool-without-nodes").problem,
    ).toContain("has(q)");
  });
});

test("errors are printed before warnings, each with its cause, evidence and fix", () => {
  const found = look([PODS, meshOff, ...THREE, peer("b", { peerSelector: "has(reflector)" })]);
  expect(found.map(({ severity }) => severity)).toEqual(["error", "warning"]);
  const text = printExamination({ findings: found, notChecked: [] }, { source: "the datastore", nodes: ["n1"] });
  expect(text).toMatch(/^Examined: .*\n\nERROR: .*\n {2}why {7}.*\n {2}evidence {2}.*\n {12}.*\n {2}fix {7}/);
  expect(text).toEndWith("\n1 error, 1 warning.\n");
});

describe("policies that Felix does not enforce as they are written", () => {
  const found = (kind: KindName, spec: object) =>
    look([...THREE, PODS, resource(kind, "x", spec)]).filter(({ id }) => id === "not-used");
  test("a valid policy gives no finding", () =>
    expect(found("GlobalNetworkPolicy", { selector: "all()", ingress: [{ action: "Deny" }] })).toEqual([]));
  test("a policy with invalid parts is a warning that lists each part and the fix", () =>
    expect(
      found("GlobalNetworkPolicy", { ingress: [{ action: "deny" }, { action: "Allow", protocol: "GRE" }] }),
    ).toEqual([
      {
        id: "not-used",
        severity: "warning",
        object: "GlobalNetworkPolicy(x)",
        problem: "GlobalNetworkPolicy x is not enforced as it is written",
        cause: "2 parts of it are invalid; Felix ignores or replaces them so that no additional traffic is allowed",
        evidence: [
          "spec.ingress[0].action: want Allow, Deny, Log or Pass: treated as Deny",
          "spec.ingress[1].protocol: want a protocol's name or a number from 1 to 255: rule ignored",
        ],
        fix: "calicoctl get globalnetworkpolicy x -o yaml, correct it, and calicoctl apply, which rejects invalid values",
      },
    ]));
  test("a policy of which no part is enforced is an error", () =>
    expect(found("GlobalNetworkPolicy", { selector: "a = b" })).toMatchObject([
      { severity: "error", problem: "GlobalNetworkPolicy x is invalid: no part of it is enforced" },
    ]));
  test("Kubernetes policies and staged policies are checked", () => {
    const nodes = {
      tier: "Admin",
      priority: 1,
      subject: { namespaces: {} },
      egress: [{ action: "Accept", to: [{ nodes: {} }] }],
    };
    expect(found("KubernetesClusterNetworkPolicy", nodes)).toMatchObject([
      {
        severity: "warning",
        problem: "Kubernetes ClusterNetworkPolicy x is not enforced as it is written",
        evidence: [expect.stringContaining("rule ignored")],
        fix: expect.stringContaining("kubectl edit clusternetworkpolicy x"),
      },
    ]);
    const ports = { podSelector: {}, ingress: [{ ports: [{ protocol: "GRE", port: 1 }] }] };
    expect(found("KubernetesNetworkPolicy", ports)).toMatchObject([{ severity: "warning" }]);
    expect(found("StagedGlobalNetworkPolicy", { ingress: [{ action: "deny" }] })).toMatchObject([
      { severity: "warning" },
    ]);
  });
  test("network sets and host endpoints are checked", () => {
    expect(found("GlobalNetworkSet", { nets: ["10.0.0.0/8", "10.0.0/8"] })).toMatchObject([{ severity: "warning" }]);
    expect(found("HostEndpoint", { node: "n1", interfaceName: "eth+" })).toMatchObject([{ severity: "error" }]);
  });
});
