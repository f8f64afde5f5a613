import { expect, test } from "bun:test";
import type { IpAddress } from "../lib/ip/ip.ts";
import { API_VERSION, type KindName, type Resource } from "../model/index.ts";
import { entriesFromResources } from "./from-resources.ts";
import { evaluatePacket, type PacketQuery } from "./evaluate-packet.ts";
import { describePacket, type Packet } from "./packet.ts";
import { PolicyState } from "./state.ts";

const make = (kind: KindName, name: string, spec: object, metadata: object = {}): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name, ...metadata },
  spec,
});
const pod = (
  name: string,
  ip: string,
  labels: Record<string, string> = {},
  more: { node?: string; ports?: object[]; profiles?: string[]; namespace?: string } = {},
) => {
  const { node = "n1", ports = [], namespace = "ns", profiles = [`kns.${namespace}`] } = more;
  const spec = {
    node,
    orchestrator: "k8s",
    pod: name,
    endpoint: "eth0",
    interfaceName: `cali${name}`,
    ipNetworks: ip.split(","),
    profiles,
    ports,
  };
  return make("WorkloadEndpoint", `${node}-k8s-${name}-eth0`, spec, {
    namespace,
    labels: { app: name, ...labels, "projectcalico.org/namespace": namespace, "projectcalico.org/orchestrator": "k8s" },
  });
};
const open = make("Profile", "kns.ns", {
  ingress: [{ action: "Allow" }],
  egress: [{ action: "Allow" }],
  labelsToApply: { "pcns.team": "red" },
});
const node = (name: string, ip: string) => make("Node", name, { addresses: [{ address: ip }] });
const tier = (name: string, order: number, defaultAction = "Deny") => make("Tier", name, { order, defaultAction });
const gnp = (name: string, spec: object) => make("GlobalNetworkPolicy", name, spec);

test("nodes and endpoint slices with fields of the wrong type are reported and ignored", () => {
  const problems: string[] = [];
  const slice = { ...make("KubernetesEndpointSlice", "web", {}), endpoints: 5 } as unknown as Resource;
  const entries = entriesFromResources(
    [make("Node", "bad", { addresses: "10.0.0.1" }), node("good", "10.0.0.2"), slice],
    ({ metadata }, reason) => problems.push(`${metadata.name}: ${reason}`),
  );
  expect(problems).toEqual(["bad: spec.addresses: want a list", "web: endpoints: want a list"]);
  expect(new PolicyState(entries).addressesOf("good")).toEqual(["10.0.0.2" as IpAddress]);
});

const packet = (source: string, destination: string, more: Partial<Packet> = {}): Packet => ({
  source: source as IpAddress,
  destination: destination as IpAddress,
  protocol: 6,
  sourcePort: 40000,
  destinationPort: 80,
  ...more,
});
function evaluate(resources: readonly Resource[], query: Packet | PacketQuery) {
  const problems: string[] = [];
  const state = new PolicyState(
    entriesFromResources(resources, (resource, reason) => problems.push(`${resource.metadata.name}: ${reason}`)),
  );
  expect(problems).toEqual([]);
  return evaluatePacket(state, "packet" in query ? query : { packet: query });
}
const [a, b] = [
  pod("a", "10.0.0.1,fd00::1"),
  pod("b", "10.0.0.2,fd00::2", {}, { node: "n2", ports: [{ name: "web", protocol: "TCP", port: 8080 }] }),
];
const hosts = [node("n1", "192.168.0.1"), node("n2", "192.168.0.2")];
const base = [a, b, open, ...hosts];

test("without policy, profiles decide, and the checkpoints report them", () => {
  const verdict = evaluate(base, packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.action).toBe("allow");
  expect(verdict.checkpoints.map((c) => [c.host, c.endpoint, c.direction, c.outcome, c.because])).toEqual([
    ["n1", "workload ns/a", "egress", "allow", "profile kns.ns, egress rule 1"],
    ["n2", "workload ns/b", "ingress", "allow", "profile kns.ns, ingress rule 1"],
  ]);
});

test("the verdict names the deciding rule, and why earlier rules did not match", () => {
  const policy = gnp("web", {
    selector: "app == 'b'",
    ingress: [
      { action: "Allow", protocol: "TCP", destination: { ports: [443] } },
      { action: "Deny", protocol: "UDP" },
      { action: "Allow", source: { selector: "app == 'c'" } },
      { action: "Deny", source: { selector: "app == 'a'" }, metadata: { annotations: { why: "no" } } },
    ],
  });
  const verdict = evaluate([...base, policy], packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.action).toBe("deny");
  expect(verdict.because).toBe("workload ns/b ingress: GlobalNetworkPolicy web in tier default, rule 4");
  expect(verdict.checkpoints[1]?.tiers[0]?.policies[0]?.rules).toEqual([
    { index: 0, action: "allow", mismatch: "destination port is 80, want 443" },
    { index: 1, action: "deny", mismatch: "protocol is tcp, want udp" },
    { index: 2, action: "allow", mismatch: 'source workload ns/a does not match app == "c"' },
    { index: 3, action: "deny", annotations: { why: "no" } },
  ]);
});

test("a tier whose policies apply but do not decide denies the packet; with Pass the next tier is evaluated", () => {
  const policies = (action: string) => [
    tier("sec", 1, action),
    tier("default", 1_000_000),
    gnp("sec-one", { tier: "sec", selector: "app == 'b'", ingress: [{ action: "Allow", protocol: "UDP" }] }),
    gnp("allow", { selector: "app == 'b'", ingress: [{ action: "Allow" }] }),
  ];
  const dropped = evaluate([...base, ...policies("Deny")], packet("10.0.0.1", "10.0.0.2"));
  expect(dropped.because).toBe(
    "workload ns/b ingress: denied by default: policies in tier sec select this endpoint, and no rule allows the packet",
  );
  expect(dropped.checkpoints[1]?.tiers.map((t) => [t.name, t.outcome])).toEqual([["sec", "end: deny"]]);
  const passed = evaluate([...base, ...policies("Pass")], packet("10.0.0.1", "10.0.0.2"));
  expect(passed.action).toBe("allow");
  expect(passed.checkpoints[1]?.tiers.map((t) => [t.name, t.outcome])).toEqual([
    ["sec", "end: pass"],
    ["default", "allow"],
  ]);
});

test("a Pass rule skips the rest of its tier", () => {
  const resources = [
    ...base,
    tier("sec", 1),
    tier("default", 2),
    gnp("p1", { tier: "sec", order: 1, selector: "app == 'b'", ingress: [{ action: "Pass" }] }),
    gnp("p2", { tier: "sec", order: 2, selector: "app == 'b'", ingress: [{ action: "Deny" }] }),
  ];
  const verdict = evaluate(resources, packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.action).toBe("allow");
  expect(verdict.checkpoints[1]?.tiers[0]).toMatchObject({ name: "sec", outcome: "pass" });
  expect(verdict.checkpoints[1]?.because).toBe("profile kns.ns, ingress rule 1");
});

test("staged policies are reported but have no effect; a tier with only staged policies passes", () => {
  const staged = make("StagedGlobalNetworkPolicy", "try", { selector: "all()", ingress: [{ action: "Deny" }] });
  const verdict = evaluate([...base, staged], packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.action).toBe("allow");
  expect(verdict.checkpoints[1]?.tiers[0]?.policies).toMatchObject([{ staged: true, outcome: "deny" }]);
});

test("with a policy for one direction only, profiles decide the other direction", () => {
  const verdict = evaluate(
    [...base, gnp("in", { selector: "all()", types: ["Ingress"], ingress: [{ action: "Allow" }] })],
    packet("10.0.0.1", "10.0.0.2"),
  );
  expect(verdict.checkpoints.map((c) => c.because)).toEqual([
    "profile kns.ns, egress rule 1",
    "GlobalNetworkPolicy in in tier default, rule 1",
  ]);
});

test("a profile that does not exist denies the packet", () => {
  const lost = pod("b", "10.0.0.2", {}, { profiles: ["gone", "kns.ns"] });
  const verdict = evaluate([a, lost, open, ...hosts], packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.because).toBe("workload ns/b ingress: profile gone does not exist, so the packet is denied");
});

test("namespaced policies select endpoints of their namespace; namespace labels are inherited from the profile", () => {
  const policy = make(
    "NetworkPolicy",
    "np",
    { selector: "app == 'b'", ingress: [{ action: "Allow", source: { namespaceSelector: "team == 'red'" } }] },
    { namespace: "ns" },
  );
  expect(evaluate([...base, policy], packet("10.0.0.1", "10.0.0.2")).action).toBe("allow");
  const stranger = pod("c", "10.0.0.3", {}, { profiles: [], namespace: "other" });
  const refused = evaluate([...base, stranger, policy], packet("10.0.0.3", "10.0.0.2"));
  expect(refused.action).toBe("deny");
});

test("rules match named ports, and the backends and ports of services", () => {
  const byName = gnp("named", {
    selector: "app == 'b'",
    ingress: [{ action: "Allow", protocol: "TCP", destination: { ports: ["web"] } }],
  });
  expect(evaluate([...base, byName], packet("10.0.0.1", "10.0.0.2", { destinationPort: 8080 })).action).toBe("allow");
  expect(evaluate([...base, byName], packet("10.0.0.1", "10.0.0.2")).action).toBe("deny");
  const slice = {
    ...make("KubernetesEndpointSlice", "s-1", {}, { namespace: "ns", labels: { "kubernetes.io/service-name": "s" } }),
    endpoints: [{ addresses: ["10.0.0.2"] }],
    ports: [{ port: 80 }],
  };
  const toService = gnp("svc", {
    selector: "app == 'a'",
    egress: [{ action: "Allow", destination: { services: { name: "s", namespace: "ns" } } }],
  });
  expect(evaluate([...base, slice, toService], packet("10.0.0.1", "10.0.0.2")).action).toBe("allow");
  const empty = { ...slice, endpoints: null, ports: null }; // null, as returned by an API server
  expect(evaluate([...base, empty, toService], packet("10.0.0.1", "10.0.0.2")).action).toBe("deny");
  const other = evaluate([...base, slice, toService], packet("10.0.0.1", "10.0.0.2", { destinationPort: 81 }));
  expect(other.checkpoints[0]?.tiers[0]?.policies[0]?.rules[0]?.mismatch).toBe(
    "tcp port 81 is not a port of service ns/s",
  );
});

test("a rule with only IPv4 CIDRs does not match IPv6 packets", () => {
  const v4only = gnp("v4", {
    selector: "app == 'b'",
    ingress: [{ action: "Allow", source: { nets: ["10.0.0.0/8"] } }],
  });
  expect(evaluate([...base, v4only], packet("10.0.0.1", "10.0.0.2")).action).toBe("allow");
  const refused = evaluate([...base, v4only], packet("fd00::1", "fd00::2"));
  expect(refused.checkpoints[1]?.tiers[0]?.policies[0]?.rules[0]?.mismatch).toBe(
    "the packet is IPv6, the rule's source CIDRs are not",
  );
});

test("notSelector alone matches addresses without an owner, selector does not", () => {
  const not = gnp("not", {
    selector: "app == 'b'",
    ingress: [{ action: "Allow", source: { notSelector: "app == 'x'" } }],
  });
  expect(evaluate([...base, not], packet("8.8.8.8", "10.0.0.2")).action).toBe("allow");
  const only = gnp("only", {
    selector: "app == 'b'",
    ingress: [{ action: "Allow", source: { selector: "app != 'x'" } }],
  });
  expect(evaluate([...base, only], packet("8.8.8.8", "10.0.0.2")).action).toBe("deny");
});

const heps = (name: string, spec: object = {}) =>
  make(
    "HostEndpoint",
    name,
    { node: "n2", interfaceName: "eth0", expectedIPs: ["192.168.0.2"], ...spec },
    { labels: { role: "host" } },
  );

test("a host endpoint denies packets that nothing allows, except on failsafe ports", () => {
  const resources = [...base, heps("hep")];
  expect(evaluate(resources, packet("8.8.8.8", "192.168.0.2")).because).toBe(
    "host endpoint hep ingress: no policy applies and the endpoint has no profiles",
  );
  const ssh = evaluate(resources, packet("8.8.8.8", "192.168.0.2", { destinationPort: 22 }));
  expect(ssh.because).toBe("host endpoint hep ingress: failsafe port 22 is always open");
  const closed = make("FelixConfiguration", "default", { failsafeInboundHostPorts: [] });
  expect(evaluate([...resources, closed], packet("8.8.8.8", "192.168.0.2", { destinationPort: 22 })).action).toBe(
    "deny",
  );
});

test("only applyOnForward policy of a host endpoint applies to forwarded traffic; without such policy it is allowed", () => {
  expect(evaluate([...base, heps("hep")], packet("10.0.0.1", "10.0.0.2")).action).toBe("allow");
  const policy = gnp("fwd", {
    selector: "role == 'host'",
    applyOnForward: true,
    ingress: [{ action: "Deny", source: { nets: ["10.0.0.1/32"] } }, { action: "Allow" }],
  });
  const verdict = evaluate([...base, heps("hep"), policy], packet("10.0.0.1", "10.0.0.2"));
  expect(verdict.because).toBe("host endpoint hep ingress: GlobalNetworkPolicy fwd in tier default, rule 1");
  expect(verdict.checkpoints.at(-1)).toMatchObject({ host: "n2", stage: "forward" });
});

test("pre-DNAT policy is evaluated on the packet before DNAT; later stages of the interface skip what it allows", () => {
  const policy = gnp("dnat", {
    selector: "role == 'host'",
    preDNAT: true,
    applyOnForward: true,
    ingress: [{ action: "Allow", protocol: "TCP", destination: { ports: [30080] } }, { action: "Deny" }],
  });
  const deny = gnp("deny", { selector: "role == 'host'", applyOnForward: true, ingress: [{ action: "Deny" }] });
  const resources = [...base, heps("hep"), policy, deny];
  const final = packet("8.8.8.8", "10.0.0.2");
  expect(
    evaluate(resources, { packet: final, beforeDnat: packet("8.8.8.8", "192.168.0.2", { destinationPort: 30080 }) })
      .action,
  ).toBe("allow");
  const refused = evaluate(resources, {
    packet: final,
    beforeDnat: packet("8.8.8.8", "192.168.0.2", { destinationPort: 30081 }),
  });
  expect(refused.checkpoints.map((c) => c.stage)).toEqual(["preDnat"]);
});

test("untracked policy is evaluated first, also for established connections", () => {
  const policy = gnp("raw", {
    selector: "role == 'host'",
    doNotTrack: true,
    applyOnForward: true,
    ingress: [{ action: "Deny", source: { nets: ["8.8.8.8/32"] } }],
  });
  const verdict = evaluate([...base, heps("hep"), policy], {
    packet: packet("8.8.8.8", "10.0.0.2"),
    established: true,
  });
  expect(verdict.checkpoints.map((c) => [c.stage, c.outcome])).toEqual([["untracked", "deny"]]);
});

test("packets of an established connection are allowed without evaluation", () => {
  const deny = gnp("deny", { selector: "all()", ingress: [{ action: "Deny" }] });
  const verdict = evaluate([...base, deny], { packet: packet("10.0.0.1", "10.0.0.2"), established: true });
  expect(verdict.action).toBe("allow");
  expect(verdict.checkpoints.map((c) => c.because)).toEqual([
    "the connection is established",
    "the connection is established",
  ]);
});

test("a wildcard host endpoint applies to traffic between workloads of one host, in both directions", () => {
  const all = make("HostEndpoint", "all", { node: "n1", interfaceName: "*" }, { labels: { role: "host" } });
  const neighbour = pod("c", "10.0.0.3");
  const out = gnp("out", {
    selector: "role == 'host'",
    applyOnForward: true,
    types: ["Egress"],
    egress: [{ action: "Deny", destination: { nets: ["10.0.0.3/32"] } }, { action: "Allow" }],
  });
  const verdict = evaluate([...base, neighbour, all, out], packet("10.0.0.1", "10.0.0.3"));
  expect(verdict.because).toBe("host endpoint all egress: GlobalNetworkPolicy out in tier default, rule 1");
  expect(evaluate([...base, neighbour, all], packet("10.0.0.1", "10.0.0.3")).action).toBe("allow");
});

test("pre-DNAT policy of the wildcard endpoint applies if an interface's own endpoint has none", () => {
  const interfaces = { node: "n1", expectedIPs: ["192.168.0.1"], profiles: ["projectcalico-default-allow"] };
  const own = (labels: Readonly<Record<string, string>>) =>
    make("HostEndpoint", "own", { ...interfaces, interfaceName: "eth0" }, { labels });
  const all = make("HostEndpoint", "all", { node: "n1", interfaceName: "*" }, { labels: { role: "all" } });
  const early = (name: string, action: "Allow" | "Deny") =>
    gnp(name, {
      selector: `role == '${name}'`,
      applyOnForward: true,
      preDNAT: true,
      types: ["Ingress"],
      ingress: [{ action }],
    });
  const incoming = packet("8.8.8.8", "192.168.0.1");
  const because = (...resources: Parameters<typeof evaluate>[0]) => evaluate([...base, ...resources], incoming).because;
  const denied = "host endpoint all ingress: GlobalNetworkPolicy all in tier default, rule 1";
  expect(because(own({}), all, early("all", "Deny"))).toBe(denied);
  // A pre-DNAT policy of the interface's own endpoint replaces it.
  const allowed = "host endpoint own ingress: GlobalNetworkPolicy own in tier default, rule 1";
  expect(because(own({ role: "own" }), all, early("all", "Deny"), early("own", "Allow"))).toBe(allowed);
  // Policy of the interface's own endpoint is not evaluated for packets that the wildcard endpoint's policy allows.
  const closed = gnp("closed", { selector: "has(closed)", types: ["Ingress"] });
  const open = evaluate([...base, own({ closed: "" }), all, early("all", "Allow"), closed], incoming);
  expect(open.checkpoints.map(({ endpoint, stage, outcome }) => ({ endpoint, stage, outcome }))).toEqual([
    { endpoint: "host endpoint all", stage: "preDnat", outcome: "allow" },
  ]);
});

test("traffic from a workload to its own host is denied by default, the opposite direction is always allowed", () => {
  expect(evaluate(base, packet("10.0.0.1", "192.168.0.1")).because).toBe("DefaultEndpointToHostAction is drop");
  const setting = make("FelixConfiguration", "default", { defaultEndpointToHostAction: "Accept" });
  expect(evaluate([...base, setting], packet("10.0.0.1", "192.168.0.1")).action).toBe("allow");
  expect(evaluate([...base, gnp("deny", { selector: "all()" })], packet("192.168.0.1", "10.0.0.1")).because).toBe(
    "policy does not apply to traffic from a host to its own workloads",
  );
  expect(evaluate([...base, gnp("deny", { selector: "all()" })], packet("192.168.0.2", "10.0.0.1")).action).toBe(
    "deny",
  );
});

test("workloads may not send tunnel packets, unless a setting allows it", () => {
  const vxlan = packet("10.0.0.1", "10.0.0.2", { protocol: 17, destinationPort: 4789 });
  expect(evaluate(base, vxlan).because).toBe("workload ns/a egress: workloads may not send VXLAN packets");
  const setting = make("FelixConfiguration", "default", { allowVXLANPacketsFromWorkloads: true });
  expect(evaluate([...base, setting], vxlan).action).toBe("allow");
});

test("a packet with neither end in the cluster is allowed", () => {
  expect(evaluate(base, packet("8.8.8.8", "9.9.9.9"))).toMatchObject({
    action: "allow",
    because: "neither source nor destination is in this cluster",
  });
});

test("describePacket prints protocol, addresses, ports and ICMP type", () => {
  expect(describePacket(packet("10.0.0.1", "10.0.0.2"))).toBe("tcp 10.0.0.1:40000 → 10.0.0.2:80");
  const ping = {
    source: "fd00::1" as IpAddress,
    destination: "fd00::2" as IpAddress,
    protocol: 58,
    icmp: { type: 128, code: 0 },
  };
  expect(describePacket(ping)).toBe("icmpv6 type 128 code 0 fd00::1 → fd00::2");
});
