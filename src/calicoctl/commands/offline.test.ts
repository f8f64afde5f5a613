// Tests `validate` and `convert`, which need no datastore, and `cluster diags`, which runs kubectl.
import { expect, test } from "bun:test";
import { chmodSync, readdirSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { convertName, normalizeName } from "../convert/names.ts";
import { CommandLine, networkSet, pool } from "../testing/command-line.ts";

test("TC-C10 validate reports the errors of a write, without a datastore", async () => {
  using line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "etcdv3"; // without endpoints, so that any access would fail
  expect(await line.pipe(`${pool("a")}---\n${networkSet("s")}`, "validate", "-f", "-")).toEqual({
    code: 0,
    out: "Successfully validated 2 resource(s)\n",
    err: "",
  });
  const bad = await line.pipe(pool("a", "10.1.0.1/16"), "validate", "-f", "-");
  expect(bad).toMatchObject({ code: 1, out: "" });
  expect(bad.err).toStartWith(
    "Failed to validate 'IPPool' resource: [error with field standard input: document 1, line 6: spec.cidr",
  );
  expect((await line.pipe("", "validate", "-f", "-", "--skip-empty")).out).toBe("No resources specified\n");
});

const conversions: { name: string; input: string; want: string }[] = [
  {
    name: "a pool",
    input:
      "apiVersion: v1\nkind: ipPool\nmetadata: {cidr: 10.1.0.0/16}\nspec: {ipip: {enabled: true}, nat-outgoing: true, disabled: true}\n",
    want: "metadata:\n  creationTimestamp: null\n  name: 10-1-0-0-16\nspec:\n  allowedUses:\n  - Workload\n  - Tunnel\n  blockSize: 26\n  cidr: 10.1.0.0/16\n  disabled: true\n  ipipMode: Always\n  natOutgoing: true\n",
  },
  {
    name: "a policy with tags, single nets and old labels",
    input:
      "apiVersion: v1\nkind: policy\nmetadata: {name: p}\nspec:\n  selector: calico/k8s_ns == 'a'\n  preDNAT: true\n  ingress:\n  - {action: pass, protocol: udp, source: {tag: t, selector: a == 'b', net: 10.0.0.1/8, '!nets': [10.1.0.0/16]}}\n",
    want: "spec:\n  applyOnForward: true\n  ingress:\n  - action: Pass\n    destination: {}\n    protocol: UDP\n    source:\n      nets:\n      - 10.0.0.0/8\n      notNets:\n      - 10.1.0.0/16\n      selector: (a == 'b') && t == ''\n  preDNAT: true\n  selector: projectcalico.org/namespace == 'a'\n  types:\n  - Ingress\n",
  },
  {
    name: "a profile with tags",
    input:
      "apiVersion: v1\nkind: profile\nmetadata: {name: k8s_ns.default, tags: [t], labels: {a: b}}\nspec: {egress: [{action: allow}]}\n",
    want: '  name: kns.default\nspec:\n  egress:\n  - action: Allow\n    destination: {}\n    source: {}\n  labelsToApply:\n    a: b\n    t: ""\n',
  },
  {
    name: "a node",
    input:
      "apiVersion: v1\nkind: node\nmetadata: {name: Node_1}\nspec: {bgp: {asNumber: 64512, ipv4Address: 10.0.0.1/24}}\n",
    want: "name: node-1\nspec:\n  bgp:\n    asNumber: 64512\n    ipv4Address: 10.0.0.1/24\nstatus: {}\n",
  },
  {
    name: "node addresses without a prefix length, and a dotted AS number",
    input:
      "apiVersion: v1\nkind: node\nmetadata: {name: n}\nspec: {bgp: {asNumber: '1.10', ipv4Address: 10.0.0.1, ipv6Address: 'fd00::1'}}\n",
    want: "  bgp:\n    asNumber: 65546\n    ipv4Address: 10.0.0.1/32\n    ipv6Address: fd00::1/128\n",
  },
  {
    name: "a workload endpoint",
    input:
      "apiVersion: v1\nkind: workloadEndpoint\nmetadata: {name: eth0, node: n-1, orchestrator: k8s, workload: ns.pod, activeInstanceID: c1, labels: {calico/k8s_ns: ns}}\nspec: {interfaceName: cali1, ipNetworks: [10.0.0.1/32], profiles: [k8s_ns.ns]}\n",
    want: "labels:\n    projectcalico.org/namespace: ns\n  name: n--1-k8s-pod-eth0\n  namespace: ns\n",
  },
  {
    name: "a global peer over IPv6",
    input: "apiVersion: v1\nkind: bgpPeer\nmetadata: {scope: global, peerIP: 'fd00::1'}\nspec: {asNumber: 64512}\n",
    want: "name: fd00-0000-0000-0000-0000-0000-0000-0001\n",
  },
  {
    name: "a Kubernetes policy",
    input:
      "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: k, namespace: ns}\nspec: {podSelector: {}, ingress: [{}]}\n",
    want: "spec:\n  ingress:\n  - action: Allow\n    destination: {}\n    source: {}\n  order: 1000\n  selector: projectcalico.org/orchestrator == 'k8s'\n  types:\n  - Ingress\n",
  },
];
for (const { name, input, want } of conversions)
  test(`TC-C11 convert: ${name}`, async () => {
    using line = new CommandLine();
    const answer = await line.pipe(input, "convert", "-f", "-");
    expect(answer).toMatchObject({ code: 0, err: "" });
    expect(answer.out).toContain(want);
    expect((await line.pipe(answer.out, "validate", "-f", "-")).err).toBe("");
  });

test("TC-C11 convert reports resources that it cannot convert, with the line", async () => {
  using line = new CommandLine();
  const wrong: [string, RegExp][] = [
    [pool("a"), /Unknown resource type \(IPPool\)/],
    [
      "apiVersion: v1\nkind: profile\nmetadata: {name: p}\nspec:\n  ingress:\n  - action: next-tier\n",
      /line 6: spec\.ingress\[0\]\.action: is 'next-tier', want allow, deny, log or pass/,
    ],
    ["apiVersion: v1\nkind: ipPool\nmetadata: {cidr: 10.1.0.0/16}\nspec: {foo: 1}\n", /spec\.foo: unknown field/],
    ["apiVersion: v1\nkind: ipPool\nmetadata: {cidr: 10.1.0.1/16}\n", /has host bits/],
    ["apiVersion: v1\nkind: bgpPeer\nmetadata: {peerIP: 10.0.0.1, scope: global, node: n}\n", /does not match scope/],
    ["apiVersion: v1\nkind: bgpPeer\nmetadata: {peerIP: 10.0.0.1, scope: rack}\n", /want node or global/],
    [
      "apiVersion: v1\nkind: bgpPeer\nmetadata: {peerIP: 10.0.0.1, scope: global}\nspec: {asNumber: many}\n",
      /is not an AS number/,
    ],
  ];
  for (const [input, want] of wrong) {
    const answer = await line.pipe(input, "convert", "-f", "-");
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toMatch(want);
  }
  const invalid =
    "apiVersion: v1\nkind: hostEndpoint\nmetadata: {name: eth0, node: n}\nspec: {interfaceName: eth0, ports: [{name: A_B, port: 80, protocol: tcp}]}\n";
  expect((await line.pipe(invalid, "convert", "-f", "-")).code).toBe(1);
  expect((await line.pipe(invalid, "convert", "-f", "-", "--ignore-validation")).code).toBe(0);
  expect((await line.pipe(invalid, "convert", "-f", "-", "-o", "foo")).err).toContain(
    "unrecognized output format 'foo'",
  );
});

test("TC-C11 convert rejects two resources that are converted to the same name", async () => {
  using line = new CommandLine();
  // Names that differ only in case get a suffix of 32 bits of a SHA-1, so that two of 2^18 such names have the same one.
  const letters = "abcdefghijklmnopqr";
  const byName = new Map<string, string>();
  let pair: readonly [string, string] | undefined;
  for (let bits = 1; pair === undefined && bits < 2 ** letters.length; bits++) {
    const name = [...letters].map((letter, i) => ((bits >> i) & 1 ? letter.toUpperCase() : letter)).join("");
    const other = byName.get(convertName(name));
    if (other !== undefined) pair = [other, name];
    byName.set(convertName(name), name);
  }
  if (pair === undefined) throw new Error("no collision found");
  const profile = (name: string) => `apiVersion: v1\nkind: profile\nmetadata: {name: ${name}, labels: {a: b}}\n`;
  const answer = await line.pipe(pair.map(profile).join("---\n"), "convert", "-f", "-");
  expect(answer).toMatchObject({ code: 1, out: "" });
  expect(answer.err).toMatch(
    /document 2.*is converted to abcdefghijklmnopqr-[0-9a-f]{8}, the same name as that of another Profile: rename one of them/,
  );
  expect((await line.pipe([...pair].map(() => profile("one")).join("---\n"), "convert", "-f", "-")).code).toBe(0);
});

const refusedByV1: [string, string, object, object][] = [
  ["metadata.cidr", "ipPool", { cidr: "10.1.0.1/16" }, {}],
  ["metadata.cidr", "ipPool", { cidr: "10.1.0.0/27" }, {}],
  ["metadata.cidr", "ipPool", { cidr: "169.254.0.0/24" }, {}],
  ["spec.ipip.mode", "ipPool", { cidr: "10.1.0.0/16" }, { ipip: { mode: "sometimes" } }],
  ["spec.ipip.enabled", "ipPool", { cidr: "fd00::/64" }, { ipip: { enabled: true } }],
  ["metadata.scope", "bgpPeer", { peerIP: "10.0.0.1" }, {}],
  ["metadata.tags", "profile", { name: "p", tags: ["a", "a"] }, {}],
  ["metadata.node", "bgpPeer", { scope: "node", node: "a/b", peerIP: "10.0.0.1" }, {}],
  ["spec.interfaceName", "hostEndpoint", { name: "h", node: "n" }, {}],
  [
    "spec.ports[0].port",
    "hostEndpoint",
    { name: "h", node: "n" },
    { interfaceName: "e", ports: [{ name: "a", protocol: "tcp", port: 0 }] },
  ],
  ["spec.expectedIPs[0]", "hostEndpoint", { name: "h", node: "n" }, { expectedIPs: ["64512"] }],
  ["spec.selector", "policy", { name: "p" }, { selector: "a = b" }],
  ["spec.preDNAT", "policy", { name: "p" }, { preDNAT: true, doNotTrack: true }],
  ["spec.egress", "policy", { name: "p" }, { preDNAT: true, types: ["egress"] }],
  ["spec.ingress[0].action", "policy", { name: "p" }, { ingress: [{ action: "Allow" }] }],
  [
    "spec.ingress[0]",
    "policy",
    { name: "p" },
    { ingress: [{ action: "allow", source: { net: "10.0.0.0/8" }, destination: { nets: ["10.1.0.0/16"] } }] },
  ],
  ["metadata.tags[0]", "profile", { name: "p", tags: ["a/b"] }, {}],
  ["spec.bgp.ipv4Address", "node", { name: "n" }, { bgp: {} }],
  ["spec.bgp.ipv6Address", "node", { name: "n" }, { bgp: { ipv6Address: "10.0.0.1" } }],
  [
    "spec.ipNetworks[0]",
    "workloadEndpoint",
    { name: "e", node: "n", orchestrator: "o", workload: "w" },
    { interfaceName: "e", ipNetworks: ["10.0.0.0/24"] },
  ],
  ["spec.interfaceName", "workloadEndpoint", { name: "e", node: "n", orchestrator: "o", workload: "w" }, {}],
  [
    "spec.ipNATs[0]",
    "workloadEndpoint",
    { name: "e", node: "n", orchestrator: "o", workload: "w" },
    { interfaceName: "e", ipNetworks: ["10.0.0.1/32"], ipNATs: [{ internalIP: "10.0.0.2", externalIP: "1.1.1.1" }] },
  ],
];
test("TC-C11 convert rejects what v1 rejected, also with --ignore-validation", async () => {
  using line = new CommandLine();
  for (const [field, kind, metadata, spec] of refusedByV1) {
    const input = JSON.stringify({ apiVersion: "v1", kind, metadata, spec });
    for (const flags of [[], ["--ignore-validation"]]) {
      const answer = await line.pipe(input, "convert", "-f", "-", ...flags);
      expect([field, answer.code, answer.err.includes(`${field}: `)]).toEqual([field, 1, true]);
    }
  }
});

test("TC-C11 convert reads negated fields, and does not print empty labels", async () => {
  using line = new CommandLine();
  const not = { notNets: ["10.1.0.0/16"], notSelector: "a == 'b'", notTag: "t", notPorts: [80] };
  const rule = { action: "deny", protocol: "tcp", notProtocol: "udp", notICMP: { type: 8 }, destination: not };
  const policy = { apiVersion: "v1", kind: "policy", metadata: { name: "p" }, spec: { ingress: [rule] } };
  const made = JSON.parse((await line.pipe(JSON.stringify(policy), "convert", "-f", "-", "-o", "json")).out);
  expect(made.spec.ingress[0]).toMatchObject({
    notProtocol: "UDP",
    notICMP: { type: 8 },
    destination: { notNets: ["10.1.0.0/16"], notSelector: "(a == 'b') && t == ''", notPorts: [80] },
  });
  const host = { interfaceName: "eth0", expectedIPs: ["fd00::1", "10.0.0.1"] };
  const hep = { apiVersion: "v1", kind: "hostEndpoint", metadata: { name: "UDPLite", node: "myhost" }, spec: host };
  expect(JSON.parse((await line.pipe(JSON.stringify(hep), "convert", "-f", "-", "-o", "json")).out)).toMatchObject({
    metadata: { name: "myhost.udplite-c6431b99" },
    spec: { expectedIPs: ["10.0.0.1", "fd00::1"] },
  });
  const endpoint = { name: "eth0", node: "n", orchestrator: "libnetwork" };
  const wep = { apiVersion: "v1", kind: "workloadEndpoint", metadata: endpoint, spec: { interfaceName: "cali1" } };
  const converted = JSON.parse((await line.pipe(JSON.stringify(wep), "convert", "-f", "-", "-o", "json")).out);
  expect(converted.metadata).toEqual({
    name: "n-libnetwork-libnetwork-eth0",
    namespace: "default",
    creationTimestamp: null,
  });
});

test("TC-C11 several converted resources are printed as one Kubernetes List", async () => {
  using line = new CommandLine();
  const one = (cidr: string) => `apiVersion: v1\nkind: ipPool\nmetadata: {cidr: ${cidr}}\n`;
  const { out } = await line.pipe(`${one("10.1.0.0/16")}---\n${one("10.2.0.0/16")}`, "convert", "-f", "-");
  expect(out).toStartWith("apiVersion: v1\nitems:\n- apiVersion: projectcalico.org/v3\n");
  expect(out).toEndWith("kind: List\nmetadata: {}\n");
});

test("normalizeName: lower case, slashes become dots, other characters dashes, none at the ends", () => {
  expect(normalizeName("A/b_C..-d_")).toBe("a.b-c.d");
});

test("TC-C39 cluster diags runs kubectl, omits secrets, and writes one archive", async () => {
  using line = new CommandLine();
  const pods = {
    items: [
      {
        metadata: { name: "calico-node-x", namespace: "kube-system", labels: { "k8s-app": "calico-node" } },
        spec: { nodeName: "n1", containers: [{ name: "calico-node" }] },
      },
      { metadata: { name: "web", namespace: "default" }, spec: { nodeName: "n1", containers: [{ name: "web" }] } },
    ],
  };
  line.file("pods.json", JSON.stringify(pods));
  const kubectl = line.file(
    "bin/kubectl",
    `#!/bin/sh
echo "$@" >> ${line.folder}/calls
case "$*" in
  *"get pods --all-namespaces -o json") cat ${line.folder}/pods.json ;;
  *"ip -6 route"*) echo no such command >&2; exit 1 ;;
  *) echo "answer to $*" ;;
esac
`,
  );
  chmodSync(kubectl, 0o755);
  line.env["PATH"] = `${line.folder}/bin:${process.env["PATH"]}`;
  const before = process.cwd();
  process.chdir(line.folder);
  try {
    const answer = await line.run("cluster", "diags", "--since=1h", "--focus-nodes", "n1");
    expect(answer).toMatchObject({ code: 0, err: "" });
    const [archive] = readdirSync(line.folder).filter((name) => /^calico-diagnostics-\d{8}_\d{6}\.tar\.gz$/.test(name));
    const list = spawnSync("tar", ["-tzf", archive ?? ""], { encoding: "utf8" }).stdout;
    expect(list).toContain("/nodes/n1/calico-node-x/nft.txt");
    expect(list).toContain("/calico/ippools.yaml");
    expect(list).not.toContain("/web/");
    const extract = (name: string) =>
      spawnSync("tar", ["-xzOf", archive ?? "", `${archive?.replace(".tar.gz", "")}/${name}`], { encoding: "utf8" })
        .stdout;
    expect(extract("nodes/n1/calico-node-x/ip6-route.txt")).toContain("no such command");
    expect(extract("nodes/n1/calico-node-x/calico-node.log")).toContain("--since=1h");
    const calls = await Bun.file(`${line.folder}/calls`).text();
    expect(
      calls
        .split("\n")
        .filter((question) => question.includes("secrets"))
        .every((question) => question.includes("custom-columns")),
    ).toBe(true);
    // If the cluster does not answer, the archive contains the errors, and the reason is printed.
    line.file("bin/kubectl", '#!/bin/sh\n[ "$1" = version ] && exit 0\necho connection refused >&2\nexit 1\n');
    const alone = await line.run("cluster", "diags");
    expect(alone).toMatchObject({ code: 1, err: "kubectl cannot list pods: connection refused\n" });
    expect(alone.out).toMatch(/Diagnostics of 0 pods collected, \d+ kubectl commands failed\./);
  } finally {
    process.chdir(before);
  }
  expect((await line.run("cluster", "diags", "--since", "soon")).err).toContain("want a number and s, m or h");
  expect((await line.run("cluster", "diags", "--max-logs", "0")).err).toContain("want a number from 1 on");
  line.env["PATH"] = "/nonexistent";
  expect((await line.run("cluster", "diags")).err).toContain("needs kubectl");
}, 20_000);
