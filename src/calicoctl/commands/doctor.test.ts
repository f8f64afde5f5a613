import { expect, test } from "bun:test";
import { CommandLine } from "../testing/command-line.ts";

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

test("bgp plan does not read secrets: it shows the password's name and never reports that there is no password", async () => {
  using line = new CommandLine();
  const peer = `apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerIP: 10.10.1.1, asNumber: 65001, password: {secretKeyRef: {name: bgp-secrets, key: r1}}}\n`;
  await line.given(node("n1", "10.10.1.5"), peer);
  const text = await line.run("bgp", "plan", "n1");
  expect(text).toMatchObject({ code: 0, err: "" });
  expect(text.out).toContain("password bgp-secrets/r1");
  expect(text.out).toContain(
    "Secrets that this command did not read\n  bgp-secrets/r1: the session has this password if calico-node can read the Secret\n",
  );
  expect(text.out).not.toMatch(/Problems|no password/);
  const json = async (...flags: string[]) =>
    JSON.parse((await line.run("bgp", "plan", "n1", "-o", "json", ...flags)).out) as object;
  expect(await json()).toMatchObject({
    peers: [{ password: "bgp-secrets/r1" }],
    problems: [],
    secretsNotRead: ["bgp-secrets/r1"],
  });
  expect(await json("--secret", "bgp-secrets/r1")).toMatchObject({ problems: [], secretsNotRead: [] });
  expect((await line.run("bgp", "plan", "n1", "-o", "bird")).out).toContain('password "<bgp-secrets/r1>"');
});
