import { expect, test } from "bun:test";
import { faults, stored, wrongFields } from "./testing.ts";

const ingress = (rule: object) => ({ ingress: [{ action: "Allow", ...rule }] });
const egress = (rule: object) => ({ egress: [{ action: "Allow", ...rule }] });
const refused = (rule: object, kind: "GlobalNetworkPolicy" | "NetworkPolicy" = "GlobalNetworkPolicy") =>
  wrongFields(kind, ingress(rule)).then((fields) => fields.map((field) => field.replace("spec.ingress[0].", "")));
const keptRule = async (rule: object) => (await stored("GlobalNetworkPolicy", ingress(rule))).ingress?.[0] as unknown;

test("DM-011 a NetworkPolicy is stored with tier and types, without empty fields", async () => {
  expect(await stored("NetworkPolicy", { selector: "", ingress: [] })).toEqual({ tier: "default", types: ["Ingress"] });
  const spec = {
    tier: "default",
    order: 0,
    selector: "app == 'a'",
    serviceAccountSelector: "has(x)",
    types: ["Ingress"],
    ingress: [{ action: "Allow", source: { services: { name: "svc" } } }],
  };
  expect(await stored("NetworkPolicy", { ...spec, ingress: [{ ...spec.ingress[0], destination: {} }] })).toEqual(
    spec as never,
  );
  expect(await wrongFields("NetworkPolicy", { doNotTrack: true })).toEqual(["spec.doNotTrack"]);
});

test("DM-012 a GlobalNetworkPolicy has a namespace selector and the host flags", async () => {
  const spec = {
    tier: "default",
    types: ["Ingress"],
    applyOnForward: true,
    doNotTrack: true,
    namespaceSelector: "a == 'b'",
  };
  expect(await stored("GlobalNetworkPolicy", spec)).toEqual(spec as never);
  expect(await wrongFields("GlobalNetworkPolicy", { namespaceSelector: "==" })).toEqual(["spec.namespaceSelector"]);
  for (const name of ["selector", "namespaceSelector", "serviceAccountSelector"])
    expect(await wrongFields("GlobalNetworkPolicy", { [name]: "global()" })).toEqual([`spec.${name}`]);
});

test("DM-013 staged policies have an action; a deletion has no other fields", async () => {
  for (const kind of ["StagedNetworkPolicy", "StagedGlobalNetworkPolicy"] as const) {
    expect(await stored(kind, { order: 5 })).toEqual({
      stagedAction: "Set",
      tier: "default",
      order: 5,
      types: ["Ingress"],
    });
    expect(await stored(kind, { stagedAction: "Delete", tier: "sec" })).toEqual({
      stagedAction: "Delete",
      tier: "sec",
    });
    expect(await stored(kind, { stagedAction: "Delete", types: ["Ingress"] })).toEqual({
      stagedAction: "Delete",
      tier: "default",
    });
    expect(await wrongFields(kind, { stagedAction: "Delete", selector: "all()" })).toEqual(["spec.selector"]);
    expect(await wrongFields(kind, { stagedAction: "Maybe" })).toEqual(["spec.stagedAction"]);
    expect(await wrongFields(kind, ingress({ action: "Drop" }))).toEqual(["spec.ingress[0].action"]);
  }
});

test("DM-014 a staged Kubernetes policy has the fields of a Kubernetes NetworkPolicy", async () => {
  const spec = {
    podSelector: { matchLabels: { a: "b" }, matchExpressions: [{ key: "k", operator: "In", values: ["x"] }] },
    ingress: [
      {
        ports: [{ protocol: "TCP", port: 80 }, { port: "http" }],
        from: [{ podSelector: {} }, { ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } }],
      },
    ],
    policyTypes: ["Ingress"],
  };
  expect(await stored("StagedKubernetesNetworkPolicy", spec)).toEqual({ stagedAction: "Set", ...spec } as never);
  expect(await stored("StagedKubernetesNetworkPolicy", { stagedAction: "Delete" })).toEqual({
    stagedAction: "Delete",
    podSelector: {},
  });
  const bad = { stagedAction: "Delete", policyTypes: ["Ingress"] };
  expect(await wrongFields("StagedKubernetesNetworkPolicy", bad)).toEqual(["spec.policyTypes"]);
  const many = { policyTypes: ["Ingress", "Egress", "Ingress"] };
  expect(await wrongFields("StagedKubernetesNetworkPolicy", many)).toEqual(["spec.policyTypes"]);
});

test("DM-015 tiers have defaults and names without dots; built-in tiers cannot be changed", async () => {
  expect(await stored("Tier", {})).toEqual({ order: 1_000_000, defaultAction: "Deny" });
  expect(await stored("Tier", { order: 0 })).toEqual({ order: 0, defaultAction: "Deny" });
  expect(await stored("Tier", { order: 5.5, defaultAction: "Pass" })).toEqual({ order: 5.5, defaultAction: "Pass" });
  expect(await wrongFields("Tier", { defaultAction: "Allow" })).toEqual(["spec.defaultAction"]);
  for (const name of ["a.b", "a".repeat(64)])
    expect(await wrongFields("Tier", {}, { metadata: { name } })).toEqual(["metadata.name"]);
  expect(await wrongFields("Tier", { order: 7 }, { metadata: { name: "kube-admin" } })).toEqual([
    "spec.order",
    "spec.defaultAction",
  ]);
  expect(await wrongFields("Tier", { order: 5 }, { metadata: { name: "default" } })).toEqual(["spec.order"]);
  const baseline = { order: 10_000_000, defaultAction: "Pass" } as const;
  expect(await stored("Tier", baseline, { metadata: { name: "kube-baseline" } })).toEqual(baseline);
});

test("DM-016 a Profile's rules and labels are checked like a policy's", async () => {
  const spec = { ingress: [{ action: "Allow" }], labelsToApply: { "pcns.a": "b" } };
  expect(await stored("Profile", spec)).toEqual(spec as never);
  expect(await wrongFields("Profile", { egress: [{ action: "Foo" }] })).toEqual(["spec.egress[0].action"]);
  expect((await wrongFields("Profile", { labelsToApply: { "a b": "c" } }))[0]).toStartWith("spec.labelsToApply");
});

test("DM-031 actions and protocols: exact names, or numbers in either spelling", async () => {
  for (const action of ["Allow", "Deny", "Log", "Pass"]) expect(await keptRule({ action })).toEqual({ action });
  for (const action of ["allow", "Drop", undefined]) expect(await refused({ action })).toEqual(["action"]);
  for (const protocol of ["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite", 1, 255])
    expect(await keptRule({ protocol })).toEqual({ action: "Allow", protocol });
  expect(await keptRule({ protocol: "6" })).toEqual({ action: "Allow", protocol: 6 });
  for (const protocol of ["tcp", "GRE", 0, 256, -1, 1.5, "Udplite"])
    expect(await refused({ protocol })).toEqual(["protocol"]);
  expect(await refused({ notProtocol: "gre" })).toEqual(["notProtocol"]);
});

test("an unknown protocol is the only fault reported for its rule, with a suggestion", async () => {
  const found = async (rule: object) =>
    (await faults("GlobalNetworkPolicy", ingress(rule))).map(({ field, reason }) => `${field}: ${reason}`);
  const want = "want TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number from 1 to 255";
  const field = "spec.ingress[0].protocol";
  expect(await found({ protocol: "tcp", destination: { ports: [80] } })).toEqual([
    `${field}: ${want}; did you mean TCP?`,
  ]);
  expect(await found({ protocol: "udplite" })).toEqual([`${field}: ${want}; did you mean UDPLite?`]);
  expect(await found({ protocol: "icmp", icmp: { type: 8 } })).toEqual([`${field}: ${want}; did you mean ICMP?`]);
  expect(await found({ protocol: "tcp", http: { methods: ["GET"] } })).toEqual([
    `${field}: ${want}; did you mean TCP?`,
  ]);
  expect(await found({ protocol: "EIGRP", source: { notPorts: [80] } })).toEqual([`${field}: ${want}`]);
  // Invalid ports are still reported.
  expect(await found({ protocol: "tcp", destination: { ports: [80, 0] } })).toEqual([
    `${field}: ${want}; did you mean TCP?`,
    "spec.ingress[0].destination.ports[1]: want ports from 1 to 65535",
  ]);
  // Ports with a known protocol that has no ports are still rejected.
  expect(await found({ protocol: "ICMP", destination: { ports: [80] } })).toEqual([
    "spec.ingress[0].destination.ports: protocol ICMP has no ports: want TCP, UDP or SCTP",
  ]);
});

test("a choice in another letter case or with a typing error is rejected with a suggestion", async () => {
  const reasons = async (rule: object) =>
    (await faults("GlobalNetworkPolicy", ingress(rule))).map(({ reason }) => reason);
  expect(await reasons({ action: "allow" })).toEqual(["want Allow, Deny, Log or Pass; did you mean Allow?"]);
  expect(await reasons({ action: "Deni" })).toEqual(["want Allow, Deny, Log or Pass; did you mean Deny?"]);
  expect(await reasons({ action: "Reject" })).toEqual(["want Allow, Deny, Log or Pass"]);
});

test("DM-032 ports are numbers, ranges or names, stored in one spelling", async () => {
  const keep = async (ports: unknown[]) =>
    ((await keptRule({ protocol: "TCP", destination: { ports } })) as { destination: { ports: unknown[] } }).destination
      .ports;
  expect(await keep([80, "443", "1:10", "7:7", "http", "http-alt"])).toEqual([80, 443, "1:10", 7, "http", "http-alt"]);
  for (const port of [
    0,
    65536,
    1.5,
    -1,
    "10:1",
    "0:5",
    "1:65536",
    "a_b",
    "UPPER",
    "a b",
    "1:2:3",
    "",
    "a".repeat(16),
    "12345678a-",
    "a--b",
  ])
    expect(await refused({ protocol: "TCP", source: { ports: [port] } })).toEqual(["source.ports[0]"]);
});

test("DM-032 a port number requires a protocol with ports; a port name does not", async () => {
  expect(await refused({ destination: { ports: [80] } })).toEqual(["destination.ports[0]"]);
  expect(await refused({ source: { notPorts: ["1:5"] } })).toEqual(["source.notPorts[0]"]);
  expect(await keptRule({ destination: { ports: ["http"] } })).toEqual({
    action: "Allow",
    destination: { ports: ["http"] },
  });
  for (const protocol of ["ICMP", "UDPLite", 47])
    expect(await refused({ protocol, destination: { ports: ["http"] } })).toEqual(["destination.ports"]);
  for (const protocol of ["SCTP", 6, 17, 132])
    expect(await keptRule({ protocol, destination: { ports: [1] } })).toMatchObject({ protocol });
});

test("DM-033 icmp requires the protocol and IP version, and a code requires a type; notICMP requires no protocol", async () => {
  for (const rule of [
    { protocol: "ICMP", icmp: { type: 254, code: 255 } },
    { protocol: 58, icmp: { type: 128 } },
    { protocol: "ICMP", icmp: {} },
    { notICMP: { type: 8 } },
    { protocol: "TCP", notICMP: { type: 8, code: 0 } },
  ])
    expect(await keptRule(rule)).toEqual({ action: "Allow", ...rule });
  expect(await refused({ protocol: "ICMP", icmp: { type: 255 } })).toEqual(["icmp.type"]);
  expect(await refused({ protocol: "ICMP", icmp: { code: 1 } })).toEqual(["icmp.code"]);
  expect(await refused({ icmp: { type: 8 } })).toEqual(["icmp"]);
  expect(await refused({ protocol: "TCP", icmp: { type: 8 } })).toEqual(["icmp"]);
  expect(await refused({ protocol: "ICMP", ipVersion: 6 })).toEqual(["ipVersion"]);
  expect(await refused({ notProtocol: 58, ipVersion: 4 })).toEqual(["ipVersion"]);
  expect(await refused({ ipVersion: 5 })).toEqual(["ipVersion"]);
  expect(await refused({ ipVersion: "4" })).toEqual(["ipVersion"]);
});

test("DM-034 nets have the IP version of the rule; notNets must not exclude all addresses", async () => {
  const rule = { ipVersion: 4, source: { nets: ["10.0.0.0/8"], notNets: ["10.1.0.0/16"] } };
  expect(await keptRule(rule)).toEqual({ action: "Allow", ...rule });
  expect(await refused({ source: { nets: ["10.0.0.0/8", "fd00::/8"] } })).toEqual(["source.nets[1]"]);
  expect(await refused({ source: { nets: ["10.0.0.0/8"] }, destination: { nets: ["fd00::/8"] } })).toEqual([
    "destination.nets[0]",
  ]);
  expect(await refused({ ipVersion: 4, source: { nets: ["fd00::/8"] } })).toEqual(["source.nets[0]"]);
  expect(await refused({ source: { notNets: ["0.0.0.0/0"] } })).toEqual(["source.notNets[0]"]);
  expect(await refused({ destination: { notNets: ["::/0"] } })).toEqual(["destination.notNets[0]"]);
  expect(await refused({ source: { nets: Array.from({ length: 257 }, (_, i) => `10.0.${i % 256}.0/24`) } })).toEqual([
    "source.nets",
  ]);
});

test("DM-035 service accounts by name and selector", async () => {
  const rule = { source: { serviceAccounts: { names: ["a", "Bad_Name"], selector: "has(z)" } } };
  expect(await keptRule(rule)).toEqual({ action: "Allow", ...rule });
  expect(await refused({ source: { serviceAccounts: { selector: "x ==" } } })).toEqual([
    "source.serviceAccounts.selector",
  ]);
});

test("DM-036 services are possible only for the peer, not with selectors, and require a name (and namespace)", async () => {
  const services = { name: "s", namespace: "ns" };
  expect(await keptRule({ protocol: "TCP", source: { services, ports: [80] } })).toMatchObject({
    source: { services },
  });
  expect(await refused({ destination: { services } })).toEqual(["destination.services"]);
  expect(await refused({ source: { services: { name: "s" } } })).toEqual(["source.services.namespace"]);
  expect(await refused({ source: { services: { namespace: "ns" } } })).toEqual(["source.services.name"]);
  for (const bad of ["10.0.0.1/32", "Always", "ff02::1", "a".repeat(254)]) {
    expect(await refused({ source: { services: { ...services, name: bad } } })).toEqual(["source.services.name"]);
    expect(await refused({ source: { services: { ...services, namespace: bad } } })).toEqual([
      "source.services.namespace",
    ]);
  }
  for (const other of [
    { selector: "all()" },
    { notSelector: "has(a)" },
    { namespaceSelector: "all()" },
    { serviceAccounts: { names: ["a"] } },
    { nets: ["10.0.0.0/8"] },
    { notNets: ["10.0.0.0/8"] },
  ])
    expect(await refused({ source: { services, ...other } })).toEqual([`source.${Object.keys(other)[0]}`]);
  const withPorts = egress({ protocol: "TCP", destination: { services, ports: [80] } });
  expect(await wrongFields("GlobalNetworkPolicy", withPorts)).toEqual(["spec.egress[0].destination.ports"]);
  expect(await wrongFields("GlobalNetworkPolicy", egress({ source: { services } }))).toEqual([
    "spec.egress[0].source.services",
  ]);
});

test("DM-037 http is possible in ingress rules with action Allow and protocol TCP, with valid paths", async () => {
  for (const rule of [
    { http: {} },
    { protocol: "TCP", http: { methods: ["GET", "FOO"], paths: [{ exact: "/a" }, { prefix: "/b" }] } },
  ])
    expect(await keptRule(rule)).toEqual({ action: "Allow", ...rule });
  expect(await wrongFields("GlobalNetworkPolicy", egress({ http: {} }))).toEqual(["spec.egress[0].http"]);
  expect(await refused({ action: "Deny", http: {} })).toEqual(["http"]);
  expect(await refused({ protocol: "UDP", http: {} })).toEqual(["protocol"]);
  expect(await refused({ http: { methods: ["GET", "GET"] } })).toEqual(["http.methods"]);
  for (const path of [
    {},
    { exact: "/a", prefix: "/b" },
    { exact: "a" },
    { exact: "/a?b" },
    { prefix: "/a#b" },
    { prefix: "/a b" },
  ])
    expect(await refused({ http: { paths: [path] } })).toEqual(["http.paths[0]"]);
});

test("DM-038 a rule's metadata annotations", async () => {
  const rule = { metadata: { annotations: { a: "b c", "Ex.org/B": "" } } };
  expect(await keptRule(rule)).toEqual({ action: "Allow", ...rule });
  expect(await refused({ metadata: { annotations: { "a b": "c" } } })).toEqual(["metadata.annotations.a b"]);
});

test("DM-039 types default to the directions that have rules; an explicit list is kept", async () => {
  const rule = { action: "Allow" };
  const types = async (spec: object) => (await stored("GlobalNetworkPolicy", spec)).types as unknown;
  expect(await types({})).toEqual(["Ingress"]);
  expect(await types({ ingress: [rule] })).toEqual(["Ingress"]);
  expect(await types({ egress: [rule] })).toEqual(["Egress"]);
  expect(await types({ ingress: [rule], egress: [rule] })).toEqual(["Ingress", "Egress"]);
  expect(await types({ egress: [rule], types: ["Ingress"] })).toEqual(["Ingress"]);
  expect(await wrongFields("GlobalNetworkPolicy", { types: ["Ingress", "Ingress"] })).toEqual(["spec.types"]);
  expect(await wrongFields("GlobalNetworkPolicy", { types: ["ingress"] })).toEqual(["spec.types[0]"]);
});

test("DM-040 preDNAT and doNotTrack exclude each other and require applyOnForward; preDNAT excludes egress", async () => {
  expect(await wrongFields("GlobalNetworkPolicy", { doNotTrack: true })).toEqual(["spec.applyOnForward"]);
  const both = { doNotTrack: true, preDNAT: true, applyOnForward: true };
  expect(await wrongFields("GlobalNetworkPolicy", both)).toEqual(["spec.preDNAT"]);
  const withEgress = { preDNAT: true, applyOnForward: true, egress: [{ action: "Allow" }] };
  expect(await wrongFields("GlobalNetworkPolicy", withEgress)).toEqual(["spec.egress", "spec.types"]);
  expect(await wrongFields("GlobalNetworkPolicy", { preDNAT: true, applyOnForward: true, types: ["Egress"] })).toEqual([
    "spec.types",
  ]);
});

test("DM-041 performance hints must be known and unique", async () => {
  const performanceHints = ["AssumeNeededOnEveryNode"];
  expect(await stored("NetworkPolicy", { performanceHints })).toMatchObject({ performanceHints } as never);
  expect(await wrongFields("NetworkPolicy", { performanceHints: ["Foo"] })).toEqual(["spec.performanceHints[0]"]);
  expect(await wrongFields("NetworkPolicy", { performanceHints: [...performanceHints, ...performanceHints] })).toEqual([
    "spec.performanceHints",
  ]);
});

test("DM-049 global() is possible only in the namespaceSelector of a rule, without other terms", async () => {
  expect(await keptRule({ source: { namespaceSelector: "global()" } })).toMatchObject({ action: "Allow" });
  expect(await keptRule({ source: { namespaceSelector: " global( ) " } })).toMatchObject({ action: "Allow" });
  expect(await refused({ source: { namespaceSelector: "global() || has(a)" } })).toEqual(["source.namespaceSelector"]);
  expect(await refused({ source: { selector: "global()" } })).toEqual(["source.selector"]);
});

test("a fault contains the field, the value and the expected value", async () => {
  const [bad] = await faults("NetworkPolicy", ingress({ source: { selector: "a == " } }));
  expect(bad).toMatchObject({ field: "spec.ingress[0].source.selector", value: "a == " });
  expect(bad?.reason).toStartWith("is not a selector: ");
  const [unknown] = await faults("NetworkPolicy", ingress({ sorce: {} }));
  expect(unknown).toEqual({ field: "spec.ingress[0].sorce", reason: "unknown field, did you mean source?" });
  const [type] = await faults("NetworkPolicy", { order: "10" });
  expect(type).toEqual({ field: "spec.order", value: "10", reason: "want a number" });
});

test("values stored by other versions are read, even if they exceed the limits of a write", async () => {
  const selector = `${Array.from({ length: 200 }, (_, i) => `has(label-${i})`).join(" && ")}`;
  expect(selector.length).toBeGreaterThan(1024);
  expect(await wrongFields("NetworkPolicy", { selector })).toEqual(["spec.selector"]);
  const spec = { selector, fromTheFuture: 1 };
  const kept = await stored("NetworkPolicy", spec, { mode: "stored", metadata: { name: "any.name.at.all" } });
  expect(kept).toEqual({ tier: "default", selector, types: ["Ingress"] });
});

test("faults are the same before and after the schema is compiled", async () => {
  const bad = ingress({ action: "Drop", protocol: "ICMP", icmp: { type: 300 }, source: { selector: "==" } });
  const before = await faults("StagedGlobalNetworkPolicy", bad);
  for (let i = 0; i < 600; i++) await stored("StagedGlobalNetworkPolicy", ingress({}));
  expect(await faults("StagedGlobalNetworkPolicy", bad)).toEqual(before);
  expect(before.map((fault) => fault.field)).toEqual(
    ["action", "icmp.type", "source.selector"].map((field) => `spec.ingress[0].${field}`),
  );
});
