// Tests `calicoctl get`: selection of resources and output formats.
import { expect, test } from "bun:test";
import { API_VERSION, type KindName } from "../../model/index.ts";
import { findManagedKind, MANAGED_KINDS } from "../resources/kinds.ts";
import { CommandLine, networkSet, policy, pool } from "../testing/command-line.ts";

const v3 = (kind: string, name: string, spec: object, more: object = {}) =>
  JSON.stringify({ apiVersion: API_VERSION, kind, metadata: { name, ...more }, spec });

test("TC-C07 get by kind, names or file prints existing resources and reports missing ones", async () => {
  using line = new CommandLine();
  await line.given(pool("a"), pool("b", "10.2.0.0/16"), networkSet("s"));
  const table = (name: string, cidr: string) =>
    `NAME   CIDR          SELECTOR   \n${name}      ${cidr}   all()      \n\n`;
  expect((await line.run("get", "ippool", "a")).out).toBe(table("a", "10.1.0.0/16"));
  expect((await line.run("get", "ippools")).out).toBe(
    "NAME   CIDR          SELECTOR   \na      10.1.0.0/16   all()      \nb      10.2.0.0/16   all()      \n\n",
  );
  expect(await line.run("get", "ippool", "a", "nope", "b")).toEqual({
    code: 1,
    out: table("a", "10.1.0.0/16") + table("b", "10.2.0.0/16"),
    err: "resource does not exist: IPPool(nope)\n",
  });
  const file = line.file("f.yaml", `${pool("a")}---\n${networkSet("s")}`);
  expect((await line.run("get", "-f", file)).out).toBe(`${table("a", "10.1.0.0/16")}NAME   \ns      \n\n`);
  expect(await line.run("get", "ippool", "nope")).toMatchObject({ code: 1, out: "" });
  expect(await line.run("get", "foos")).toMatchObject({ code: 1, out: "" });
  expect((await line.run("get", "foos")).err).toStartWith(
    "Failed to get resources: resource type 'foos' is not supported",
  );
  expect(await line.run("get")).toMatchObject({ code: 2, out: "" });
  expect((await line.run("get", "ippool", "")).code).toBe(1);
});

test("TC-C17 --export omits cluster-specific metadata, for named resources only", async () => {
  using line = new CommandLine();
  await line.given(policy("p", "ns1"));
  expect((await line.run("get", "np", "p", "-n", "ns1", "-o", "yaml", "--export")).out).toBe(
    [
      "apiVersion: projectcalico.org/v3",
      "kind: NetworkPolicy",
      "metadata:",
      "  labels:",
      "    projectcalico.org/tier: default",
      "  name: p",
      "spec:",
      "  selector: all()",
      "  tier: default",
      "  types:",
      "  - Ingress",
      "",
    ].join("\n"),
  );
  expect((await line.run("get", "np", "-n", "ns1", "-o", "yaml", "--export")).out).toContain("uid:");
});

test("TC-C18 one result is an object, several are a list, none is null; lists have their own kind", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"), networkSet("b"));
  const get = async (...args: string[]) => (await line.run("get", "globalnetworkset", ...args)).out;
  expect(JSON.parse(await get("a", "-o", "json"))).toMatchObject({ kind: "GlobalNetworkSet", metadata: { name: "a" } });
  expect(JSON.parse(await get("a", "b", "-o", "json"))).toMatchObject([
    { metadata: { name: "a" } },
    { metadata: { name: "b" } },
  ]);
  const list = JSON.parse(await get("-o", "json"));
  expect(list).toMatchObject({ kind: "GlobalNetworkSetList", apiVersion: API_VERSION });
  expect(list.metadata.resourceVersion).toMatch(/^\d+$/);
  expect(list.items).toHaveLength(2);
  expect(Object.keys(list.items[0])).toEqual(["kind", "apiVersion", "metadata", "spec"]);
  expect(await get("nope", "-o", "yaml")).toBe("null\n");
  expect(await get("a", "-o", "yml")).toBe(await get("a", "-o", "yaml"));
  expect((await line.run("get", "networkset", "-o", "yaml")).out).toMatch(
    /^apiVersion: projectcalico.org\/v3\nitems: \[\]\nkind: NetworkSetList\nmetadata:\n {2}resourceVersion: "\d+"\n$/,
  );
  expect((await line.run("get", "gnetsets", "-o", "foo")).err).toStartWith(
    "calicoctl get: unrecognized output format 'foo'",
  );
});

test("TC-C18 zero values that other programs stored are not printed, unknown fields are", async () => {
  using line = new CommandLine();
  const metadata = { name: "default", uid: "u", creationTimestamp: "2026-01-01T00:00:00Z" };
  await line.put({
    apiVersion: API_VERSION,
    kind: "ClusterInformation",
    metadata,
    spec: { calicoVersion: "", datastoreReady: true },
  });
  expect((await line.run("get", "clusterinfo", "default", "-o", "yaml")).out).not.toContain("calicoVersion");
  await line.put({ apiVersion: API_VERSION, kind: "ClusterInformation", metadata, spec: { fromTheFuture: 1 } });
  expect((await line.run("get", "clusterinfo", "default", "-o", "yaml")).out).toContain("fromTheFuture: 1");
});

const shortHeadings: Partial<Record<KindName, string>> = {
  BGPConfiguration: "NAME LOGSEVERITY MESHENABLED ASNUMBER",
  BGPPeer: "NAME PEERIP NODE ASN",
  ClusterInformation: "NAME CLUSTERGUID CLUSTERTYPE CALICOVERSION DATASTOREREADY",
  FelixConfiguration: "NAME",
  GlobalNetworkPolicy: "NAME TIER",
  GlobalNetworkSet: "NAME",
  HostEndpoint: "NAME NODE",
  IPPool: "NAME CIDR SELECTOR",
  KubeControllersConfiguration: "NAME",
  NetworkPolicy: "NAME TIER",
  NetworkSet: "NAME",
  Node: "NAME",
  Profile: "NAME",
  WorkloadEndpoint: "WORKLOAD NODE NETWORKS INTERFACE",
};

test("TC-C19 headings of the older kinds", async () => {
  using line = new CommandLine();
  for (const [kind, headings] of Object.entries(shortHeadings)) {
    const { code, out } = await line.run("get", kind);
    expect([kind, code, out.split("\n")[0]?.trim().split(/\s+/).join(" ")]).toEqual([kind, 0, headings]);
  }
});

test("TC-C19 every kind is found by its name in any case and by its short names", () => {
  for (const kind of MANAGED_KINDS) {
    expect(findManagedKind(kind.toUpperCase())).toBe(kind);
    expect(findManagedKind(`${kind.toLowerCase()}s`.replace(/ys$/, "ies").replace(/ss$/, "ses"))).toBe(kind);
  }
  const short = {
    np: "NetworkPolicy",
    pol: "NetworkPolicy",
    gnp: "GlobalNetworkPolicy",
    hep: "HostEndpoint",
    no: "Node",
    bp: "BGPPeer",
  };
  for (const [word, kind] of Object.entries(short)) expect<string | undefined>(findManagedKind(word)).toBe(kind);
  expect(findManagedKind("blockaffinity")).toBeUndefined();
});

test("TC-C19 wide tables: lists, defaults of nodes, fields that are not set", async () => {
  using line = new CommandLine();
  await line.given(
    v3("BGPConfiguration", "default", { asNumber: 65333 }),
    v3("Node", "n0", {}),
    v3("Node", "n1", { bgp: { ipv4Address: "10.0.0.9/24" } }),
    v3("Node", "n2", { bgp: { ipv4Address: "10.0.0.8/24", asNumber: 1 } }),
    v3("HostEndpoint", "h", { node: "n1", expectedIPs: ["10.0.0.1", "fd00::1"], profiles: ["a", "b"] }),
    v3(
      "WorkloadEndpoint",
      "n1-k8s-p-eth0",
      {
        node: "n1",
        orchestrator: "k8s",
        pod: "p",
        endpoint: "eth0",
        interfaceName: "cali1",
        ipNetworks: ["10.0.0.1/32"],
        ipNATs: [{ internalIP: "10.0.0.1", externalIP: "1.1.1.1" }],
      },
      { namespace: "default" },
    ),
  );
  const wide = async (kind: string) => (await line.run("get", kind, "-o", "wide")).out;
  expect(await wide("nodes")).toBe(
    "NAME   ASN       IPV4          IPV6   \nn0                                    \nn1     (65333)   10.0.0.9/24          \nn2     1         10.0.0.8/24          \n\n",
  );
  expect(await wide("hep")).toContain("h      n1                 10.0.0.1,fd00::1   a,b        ");
  expect(await wide("wep")).toContain("1.1.1.1->10.0.0.1");
});

test("TC-C20 tables of the newer kinds", async () => {
  using line = new CommandLine();
  await line.given(
    v3("Tier", "sec", { order: 50, defaultAction: "Pass" }),
    v3("StagedNetworkPolicy", "s", { order: 5, selector: "a == 'b'" }, { namespace: "ns1" }),
    v3("StagedGlobalNetworkPolicy", "s", { selector: "all()" }),
    v3("StagedKubernetesNetworkPolicy", "s", { podSelector: { matchLabels: { a: "b" } } }, { namespace: "ns1" }),
    v3("BGPFilter", "f", { exportV4: [{ action: "Accept" }, { action: "Reject" }] }),
    v3("IPReservation", "r", { reservedCIDRs: ["10.0.0.0/29"] }),
    v3("CalicoNodeStatus", "c", { node: "n1", classes: ["Agent", "BGP"], updatePeriodSeconds: 10 }),
    v3("IPAMConfiguration", "default", { strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 4 }),
  );
  const wide = async (...words: string[]) => (await line.run("get", ...words, "-o", "wide")).out;
  expect((await line.run("get", "tiers")).out).toBe(
    "NAME            ORDER   \nsec             50      \nkube-admin      1000    \ndefault         1e+06   \nkube-baseline   1e+07   \n\n",
  );
  expect(await wide("snp", "-n", "ns1")).toBe(
    "NAMESPACE   NAME   TIER      ORDER   SELECTOR   \nns1         s      default   5       a == 'b'   \n\n",
  );
  expect(await wide("sgnp")).toContain("s      default   <nil>   all()      ");
  expect(await wide("sknp", "-A")).toContain("ns1         s      a=b");
  expect(await wide("bgpfilter")).toContain("f      2             0             0             0             ");
  expect(await wide("reservations")).toContain("r      10.0.0.0/29   ");
  expect(await wide("nodestatus")).toContain("c      n1     Agent,BGP   ");
  expect(await wide("ipamconfig")).toContain("default   true             true                 4                  ");
});

test("TC-C21 custom columns have the requested order; the error for an unknown one lists all", async () => {
  using line = new CommandLine();
  await line.given(policy("p", "ns1"));
  const get = (columns: string) => line.run("get", "np", "-n", "ns1", "-o", `custom-columns=${columns}`);
  expect((await get("SELECTOR,NAME,NAMESPACE")).out).toBe(
    "SELECTOR   NAME   NAMESPACE   \nall()      p      ns1         \n\n",
  );
  expect((await get("")).err).toBe("need to specify at least one column\n");
  const unknown = await get("NAME,FOO");
  expect(unknown).toMatchObject({ code: 1, out: "" });
  expect(unknown.err).toContain("Unknown heading FOO, valid values are: NAME, TIER, ORDER, SELECTOR, NAMESPACE");
  expect((await get("name")).err).toContain("Unknown heading name, valid values are: NAME");
});

test("TC-C21 formats must be lower case; an empty namespace is ignored", async () => {
  using line = new CommandLine();
  await line.given(policy("p", "default"));
  expect(await line.run("get", "np", "-o", "JSON")).toMatchObject({ code: 2, out: "" });
  expect((await line.run("get", "np", "-n", "")).out).toBe("NAME   TIER      \np      default   \n\n");
});

test("TC-C21 go-template and go-template-file use Go's field names and zero values", async () => {
  using line = new CommandLine();
  await line.given(
    v3("GlobalNetworkPolicy", "p", { order: 10.5, selector: "a == 'b'" }),
    v3("GlobalNetworkPolicy", "q", {}),
    v3("Node", "n", { bgp: { asNumber: 64512, ipv4Address: "10.0.0.1/24" } }),
  );
  const get = (kind: string, template: string) => line.run("get", kind, "-o", `go-template=${template}`);
  const each = (body: string) => `{{range .}}{{range .Items}}${body}{{end}}{{end}}`;
  expect(
    (await get("gnp", each("{{.Name}} {{.ObjectMeta.Name}} {{.Spec.Order}} {{.Spec.PreDNAT}} [{{.Spec.Selector}}]\n")))
      .out,
  ).toBe("p p 10.5 false [a == 'b']\nq q <nil> false []\n");
  expect((await get("nodes", each("{{.Spec.BGP.ASNumber}} {{.Spec.BGP.IPv4Address}} {{.Kind}}"))).out).toBe(
    "64512 10.0.0.1/24 Node",
  );
  expect((await get("nodes", each('{{config "asnumber"}}'))).out).toBe("64512");
  const file = line.file("t", each('{{.Name}}={{join .Spec.Types ";"}}\n'));
  expect((await line.run("get", "gnp", "-o", `go-template-file=${file}`)).out).toBe("p=Ingress\nq=Ingress\n");
  expect((await get("gnp", "{{.Foo")).err).toBe("template: get:1: unclosed action\n");
  expect((await get("gnp", each("{{.Spec.Foo}}"))).err).toContain(
    "can't evaluate field Foo in type v3.GlobalNetworkPolicySpec",
  );
  expect((await get("gnp", "")).err).toBe("need to specify a template\n");
  expect((await line.run("get", "gnp", "-o", "go-template-file=/nope")).err).toBe(
    "open /nope: no such file or directory\n",
  );
});

test("headings are bold only on a terminal, and not if NO_COLOR is set", async () => {
  using line = new CommandLine();
  line.isTerminal = true;
  expect((await line.run("get", "gnetsets")).out).toBe("\x1b[1mNAME   \x1b[0m\n\n");
  line.env["NO_COLOR"] = "1";
  expect((await line.run("get", "gnetsets")).out).toBe("NAME   \n\n");
});
