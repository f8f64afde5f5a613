import { expect, test } from "bun:test";
import { openDatastore } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { parseAddress } from "../../lib/ip/ip.ts";
import { CommandLine, pool } from "../testing/command-line.ts";

const node = (name: string, address: string) =>
  `apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: ${name}}\nspec: {bgp: {ipv4Address: ${address}/24}}\n`;
const selects = (selector: string) =>
  `apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: p}\nspec: {peerSelector: "${selector}"}\n`;

test("doctor: exit code 0 without findings, 3 with findings, 2 for wrong usage, 1 without a datastore", async () => {
  using line = new CommandLine();
  line.env["CALICO_NODENAME_FILE"] = line.file("nodename", "");
  await line.given(node("n1", "10.0.0.1"), node("n2", "10.0.0.2"), selects("all()"));
  expect(await line.run("doctor")).toEqual({
    code: 0,
    out: "Examined: the datastore (2 nodes). Not examined: hosts n1, n2.\n\nNothing wrong found.\n",
    err: "",
  });
  await line.given(selects("has(rack)"));
  const text = await line.run("doctor");
  expect(text).toMatchObject({ code: 3, out: expect.stringContaining("WARNING: BGPPeer p has no effect") });
  const json = await line.run("doctor", "-o", "json");
  expect(json.code).toBe(3);
  expect(JSON.parse(json.out)).toMatchObject({
    nodes: 2,
    host: null,
    notExamined: ["n1", "n2"],
    notChecked: [],
    findings: [{ id: "selector-matches-nothing", object: "BGPPeer(p)", setting: "BGPPeer(p) spec.peerSelector" }],
  });
  expect((await line.run("doctor", "-o", "yaml")).code).toBe(2);
  expect((await line.run("doctor", "more")).code).toBe(2);
  line.env["DATASTORE_TYPE"] = "none-of-ours";
  expect((await line.run("doctor")).code).toBe(1);
});

test("doctor --from reads a directory", async () => {
  using line = new CommandLine();
  line.file("cluster/nodes.yaml", [node("n1", "10.0.0.1"), node("n2", "10.0.0.1")].join("---\n"));
  const answer = await line.run("doctor", "--from", `${line.folder}/cluster`);
  expect(answer).toMatchObject({
    code: 3,
    out: expect.stringContaining("nodes n1 and n2 both have the address 10.0.0.1"),
  });
});

test("doctor: a host whose nodename file names a node that the datastore does not have", async () => {
  using line = new CommandLine();
  line.env["CALICO_NODENAME_FILE"] = line.file("nodename", "elsewhere\n");
  await line.given(node("n1", "10.0.0.1"));
  const { code, out } = await line.run("doctor");
  expect(code).toBe(3);
  expect(out).toStartWith(
    "Examined: the datastore (1 node). Not examined: this host (the datastore has no Node elsewhere), host n1.\n",
  );
  expect(out).toContain("this host is node elsewhere, but the datastore has no Node elsewhere");
  expect(out).toContain("nodename contains elsewhere");
  expect((await line.run("doctor", "--no-host")).code).toBe(0);
});

const AFFINITY = `apiVersion: v1
kind: List
items:
- apiVersion: crd.projectcalico.org/v1
  kind: BlockAffinity
  metadata: {name: n1-10-65-1-0-26}
  spec: {node: n1, cidr: 10.65.1.0/26, state: confirmed, deleted: "false"}
- apiVersion: crd.projectcalico.org/v1
  kind: BlockAffinity
  metadata: {name: n2-10-65-2-0-26}
  spec: {node: n2, cidr: 10.65.2.0/26, state: confirmed, deleted: "false"}
`;

test("bgp plan --from includes the node's blocks, and ignores resources that are not Calico's", async () => {
  using line = new CommandLine();
  line.file("cluster/nodes.yaml", [node("n1", "10.0.0.1"), node("n2", "10.0.0.2")].join("---\n"));
  line.file("cluster/blocks.yaml", AFFINITY);
  line.file("cluster/shop.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n");
  const answer = await line.run("bgp", "plan", "n1", "--from", `${line.folder}/cluster`, "-o", "json");
  expect(answer).toMatchObject({ code: 0, err: "" });
  expect(JSON.parse(answer.out)).toMatchObject({
    staticBlackholes: ["10.65.1.0/26"],
    aggregation: [{ block: "10.65.1.0/26" }],
    peers: [{ neighbor: "10.0.0.2" }],
  });
  line.file("empty/shop.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n");
  expect(await line.run("bgp", "plan", "n1", "--from", `${line.folder}/empty`)).toMatchObject({
    code: 1,
    err: expect.stringContaining("No resources in"),
  });
});

test("bgp plan lists the secrets that it does not read, and never reports that there is no password", async () => {
  using line = new CommandLine();
  const peer = `apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerIP: 10.10.1.1, asNumber: 65001, password: {secretKeyRef: {name: bgp-secrets, key: r1}}}\n`;
  await line.given(node("n1", "10.10.1.5"), peer);
  line.file("cluster/all.yaml", [node("n1", "10.10.1.5"), peer].join("---\n"));
  const from = ["--from", `${line.folder}/cluster`];
  const plan = (...flags: readonly string[]) => line.run("bgp", "plan", "n1", ...flags);
  const json = async (...flags: readonly string[]) => JSON.parse((await plan("-o", "json", ...flags)).out) as object;
  for (const source of [[], from]) {
    const text = await plan(...source);
    expect(text).toMatchObject({ code: 0, err: "" });
    expect(text.out).toContain(
      "Secrets that this command did not read\n  bgp-secrets/r1: the session has this password if calico-node can read the Secret\n",
    );
    expect(text.out).not.toMatch(/Problems|no password/);
    expect(await json(...source)).toMatchObject({ problems: [], secretsNotRead: ["bgp-secrets/r1"] });
    expect(await json(...source, "--secret", "bgp-secrets/r1")).toMatchObject({
      peers: [{ password: "bgp-secrets/r1" }],
      problems: [],
      secretsNotRead: [],
    });
  }
  // Files may be for the Kubernetes datastore, where nodes normally can read Secrets; SQLite has none, as in Calico with etcd.
  expect((await plan(...from)).out).toContain("password bgp-secrets/r1");
  expect((await plan(...from, "-o", "bird")).out).toContain('password "<bgp-secrets/r1>"');
  expect(await json()).toMatchObject({ peers: [{ password: null }] });
});

const endpoint = (name: string, address: string) =>
  `apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata: {name: n1-cni-${name}-eth0, namespace: default}\nspec: {node: n1, orchestrator: cni, containerID: ${name}, endpoint: eth0, interfaceName: cali${name}, ipNetworks: [${address}/32]}\n`;

/** Assigns addresses of n1 with IPAM. */
async function assign(line: CommandLine, ...addresses: readonly string[]): Promise<void> {
  const path = line.env["CALICO_SQLITE_PATH"] ?? "";
  const datastore = await openDatastore({ type: "sqlite", path, isFallback: false });
  try {
    for (const address of addresses)
      await new Ipam({ datastore }).assignAddress({
        address: parseAddress(address),
        host: "n1",
        handleId: `h-${address}`,
        attributes: { node: "n1" },
      });
  } finally {
    await datastore.close();
  }
}

test("deleting a pool that is in use prints a warning, and doctor reports the workloads until the pool exists again", async () => {
  using line = new CommandLine();
  line.env["CALICO_NODENAME_FILE"] = line.file("nodename", "");
  await line.given(
    node("n1", "192.0.2.1"),
    pool("a", "10.1.0.0/24"),
    pool("b", "10.2.0.0/24"),
    pool("c", "10.3.0.0/24"),
  );
  await line.given(endpoint("web", "10.1.0.1"), endpoint("db", "10.1.0.2"));
  await line.given(endpoint("local", "10.1.0.3"), endpoint("foreign", "172.20.0.7")); // not assigned by IPAM
  await assign(line, "10.1.0.1", "10.1.0.2", "10.1.0.9");
  expect((await line.run("doctor")).code).toBe(0);

  expect(await line.run("delete", "ippool", "b")).toMatchObject({ code: 0, err: "" }); // not in use
  const deleted = await line.run("delete", "ippool", "a");
  expect(deleted).toMatchObject({ code: 0, out: "Successfully deleted 1 'IPPool' resource(s)\n" });
  expect(deleted.err).toMatch(
    /^Warning: IPPool\(a\) is deleted, but 3 addresses of 10\.1\.0\.0\/24 are still in use: .*\n$/,
  );
  for (const text of ["traffic between nodes fails", "cidr 10.1.0.0/24 and blockSize 26", "spec.disabled: true"])
    expect(deleted.err).toContain(text);

  const json = await line.run("doctor", "-o", "json");
  expect(json.code).toBe(3);
  const { findings, notChecked } = JSON.parse(json.out) as { findings: object[]; notChecked: object[] };
  expect(notChecked).toEqual([]);
  expect(findings).toMatchObject([
    {
      id: "address-in-no-pool",
      severity: "error",
      problem: expect.stringMatching(/^2 addresses of workloads are in no IPv4 pool, for example 10\.1\.0\.\d /),
      evidence: [expect.stringContaining("block 10.1.0.0/26 lies in no pool: 2 addresses")],
      fix: expect.stringContaining("blockSize 26"),
    },
  ]);

  await line.given(pool("a", "10.1.0.0/24"));
  expect((await line.run("doctor")).code).toBe(0);
});

test("doctor: addresses in no pool are reported if the only pool was deleted", async () => {
  using line = new CommandLine();
  line.env["CALICO_NODENAME_FILE"] = line.file("nodename", "");
  await line.given(node("n1", "192.0.2.1"), pool("a", "10.1.0.0/24"));
  await line.given(endpoint("web", "10.1.0.1"));
  await assign(line, "10.1.0.1");
  expect((await line.run("delete", "ippool", "a")).err).toContain("1 address of 10.1.0.0/24 is still in use");
  expect((await line.run("doctor")).out).toContain("in no IPv4 pool");
});
