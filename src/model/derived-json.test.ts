import { describe, expect, test } from "bun:test";
import { parseAddress, parseCidr } from "../lib/ip.ts";
import type { Policy } from "./derived.ts";
import { decodeAnyValue, encodeAnyValue } from "./derived-json.ts";
import type { Key } from "./keys.ts";
import { UnreadableValue } from "./unreadable-value.ts";

const cidr = parseCidr("10.0.0.0/8");
const policy: Policy = {
  namespace: "ns1",
  tier: "default",
  order: 1.5,
  inboundRules: [
    {
      action: "next-tier",
      ipVersion: 4,
      protocol: "tcp",
      notProtocol: 17,
      icmp: { type: 8, code: 0 },
      notIcmp: { type: 3 },
      source: {
        nets: [cidr],
        notNets: [cidr],
        selector: 'a == "b"',
        notSelector: "has(c)",
        ports: [{ min: 1, max: 10 }, { min: 80, max: 80 }, { name: "http" }],
        notPorts: [{ name: "x" }],
        original: {
          selector: "a=='b'",
          notSelector: "has( c)",
          namespaceSelector: "n == 'm'",
          serviceAccountNames: ["x"],
          serviceAccountSelector: "s == 't'",
        },
      },
      destination: { service: { name: "s", namespace: "ns1" }, original: { service: { name: "s" } } },
      http: { methods: ["GET"], paths: [{ exact: "/a" }] },
      annotations: { why: "x" },
    },
  ],
  outboundRules: [],
  selector: "all()",
  untracked: true,
  applyOnForward: true,
  types: ["ingress"],
  performanceHints: ["AssumeNeededOnEveryNode"],
  stagedAction: "Set",
};

test("what would become rule text is a name and numbers, or nothing", () => {
  const workload = {
    type: "workloadEndpoint",
    host: "n",
    orchestrator: "k8s",
    workload: "a/b",
    endpoint: "eth0",
  } as const;
  const host = { type: "hostEndpoint", host: "n", endpoint: "e" } as const;
  for (const json of [{ name: "cali1\n-j ACCEPT" }, { name: "eth+" }, { name: "a", qosControls: { dscp: "1 -j X" } }])
    for (const key of [workload, host] as const)
      expect(() => decodeAnyValue<Key>(key, JSON.stringify(json))).toThrow(UnreadableValue);
  expect(() => decodeAnyValue<Key>(workload, '{"name":"*"}')).toThrow(UnreadableValue);
  expect(decodeAnyValue<Key>(host, '{"name":"*"}')).toMatchObject({ name: "*" });
});

const values: readonly (readonly [Key, unknown, string])[] = [
  [{ type: "ready" }, true, "true"],
  [{ type: "globalConfig", name: "A" }, "text", "text"],
  [{ type: "hostIp", host: "n" }, "10.0.0.1", "10.0.0.1"],
  [{ type: "tier", name: "t" }, { order: 1, defaultAction: "Pass" }, '{"order":1,"defaultAction":"Pass"}'],
  [{ type: "profileLabels", name: "p" }, { a: "b" }, '{"a":"b"}'],
  [
    { type: "networkSet", name: "s" },
    { nets: [cidr], labels: { a: "b" }, profileIds: ["kns.x"] },
    '{"nets":["10.0.0.0/8"],"labels":{"a":"b"},"profile_ids":["kns.x"]}',
  ],
  [
    { type: "wireguard", host: "n" },
    { interfaceIpv4Addr: "10.0.0.1", publicKey: "k" },
    '{"interfaceIPv4Addr":"10.0.0.1","publicKey":"k"}',
  ],
  [
    { type: "bgpPeer", ip: parseAddress("10.0.0.1") },
    { ip: "10.0.0.1", asNumber: "64512" },
    '{"ip":"10.0.0.1","as_num":"64512"}',
  ],
  [
    { type: "pool", cidr },
    {
      cidr,
      ipipMode: "always",
      vxlanMode: "",
      masquerade: true,
      ipam: true,
      disabled: false,
      disableBgpExport: false,
      assignmentMode: "Automatic",
      allowedUses: ["Workload"],
    },
    '{"cidr":"10.0.0.0/8","ipip":"tunl0","ipip_mode":"always","vxlan_mode":"","masquerade":true,"ipam":true,"disabled":false,"disableBGPExport":false,"assignment_mode":"Automatic","allowed_uses":["Workload"]}',
  ],
  [
    { type: "workloadEndpoint", host: "n", orchestrator: "k8s", workload: "a/b", endpoint: "eth0" },
    {
      state: "active",
      name: "cali1",
      mac: "ee:ee:ee:ee:ee:ee",
      profileIds: ["kns.x"],
      ipv4Nets: ["10.0.0.1/32"],
      ipv6Nets: [],
      ipv4Nat: [{ internal: "10.0.0.1", external: "1.2.3.4" }],
      labels: { a: "b" },
      ports: [{ name: "http", protocol: "tcp", port: 80 }],
      qosControls: { dscp: 10 },
    },
    '{"state":"active","name":"cali1","mac":"ee:ee:ee:ee:ee:ee","profile_ids":["kns.x"],"ipv4_nets":["10.0.0.1/32"],"ipv6_nets":[],"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"1.2.3.4"}],"labels":{"a":"b"},"ports":[{"name":"http","protocol":"tcp","port":80}],"qosControls":{"dscp":10}}',
  ],
  [
    { type: "hostEndpoint", host: "n", endpoint: "h" },
    { name: "eth0", expectedIpv4Addrs: ["10.0.0.1"], expectedIpv6Addrs: [], labels: {}, profileIds: [], ports: [] },
    '{"name":"eth0","expected_ipv4_addrs":["10.0.0.1"],"expected_ipv6_addrs":[],"labels":{},"profile_ids":[],"ports":[]}',
  ],
  [{ type: "ipamHandle", handleId: "h" }, { handleId: "h", block: {}, deleted: false }, '{"block":{},"deleted":false}'],
];

describe("DM-084 v1 values", () => {
  for (const [key, value, text] of values)
    test(key.type, () => {
      expect(encodeAnyValue(key, value as never)).toBe(text);
      expect(decodeAnyValue(key, text) as unknown).toEqual(value);
    });

  test("a policy says negations with ! and keeps what the user wrote", () => {
    const key = { type: "policy", kind: "NetworkPolicy", namespace: "ns1", name: "p" } as const;
    const text = encodeAnyValue(key, policy);
    expect(JSON.parse(text)).toEqual({
      namespace: "ns1",
      tier: "default",
      order: 1.5,
      inbound_rules: [
        {
          action: "next-tier",
          ip_version: 4,
          protocol: "tcp",
          "!protocol": 17,
          icmp_type: 8,
          icmp_code: 0,
          "!icmp_type": 3,
          src_nets: ["10.0.0.0/8"],
          "!src_nets": ["10.0.0.0/8"],
          src_selector: 'a == "b"',
          "!src_selector": "has(c)",
          src_ports: ["1:10", 80, "http"],
          "!src_ports": ["x"],
          orig_src_selector: "a=='b'",
          "!orig_src_selector": "has( c)",
          orig_src_namespace_selector: "n == 'm'",
          orig_src_service_acct_names: ["x"],
          orig_src_service_acct_selector: "s == 't'",
          dst_service: "s",
          http: { methods: ["GET"], paths: [{ exact: "/a" }] },
          metadata: { annotations: { why: "x" } },
        },
      ],
      outbound_rules: [],
      selector: "all()",
      untracked: true,
      apply_on_forward: true,
      types: ["ingress"],
      performance_hints: ["AssumeNeededOnEveryNode"],
      staged_action: "Set",
    });
    expect(decodeAnyValue(key, text)).toEqual(policy);
  });

  test("what does not parse is refused with its field", () => {
    expect(() => decodeAnyValue({ type: "tier", name: "t" }, "{")).toThrow(UnreadableValue);
    expect(() => decodeAnyValue({ type: "pool", cidr }, '{"cidr":"x"}')).toThrow("cidr: want a CIDR");
    expect(() =>
      decodeAnyValue(
        { type: "policy", kind: "NetworkPolicy", namespace: "a", name: "b" },
        '{"tier":"t","inbound_rules":[{"action":"x"}]}',
      ),
    ).toThrow("inbound_rules[0].action");
  });
});
