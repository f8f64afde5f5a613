import { expect, test } from "bun:test";
import { CommandLine } from "../testing/command-line.ts";

const node = (name: string, address: string) =>
  `apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: ${name}}\nspec: {bgp: {ipv4Address: ${address}/24}}\n`;
const selects = (selector: string) =>
  `apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: p}\nspec: {peerSelector: "${selector}"}\n`;

test("doctor: exit 0 when nothing is wrong, 3 with findings as text and json, 2 asked wrongly, 1 without a datastore", async () => {
  using line = new CommandLine();
  line.env["CALICO_NODENAME_FILE"] = line.file("nodename", "elsewhere");
  await line.given(node("n1", "10.0.0.1"), node("n2", "10.0.0.2"), selects("all()"));
  expect(await line.run("doctor")).toEqual({
    code: 0,
    out: "Nothing wrong found in the cluster (2 nodes).\n",
    err: "",
  });
  await line.given(selects("has(rack)"));
  const text = await line.run("doctor");
  expect(text).toMatchObject({ code: 3, out: expect.stringContaining("WARNING: BGPPeer p makes no session") });
  const json = await line.run("doctor", "-o", "json");
  expect(json.code).toBe(3);
  expect(JSON.parse(json.out)).toMatchObject({
    nodes: 2,
    host: null,
    findings: [{ id: "selector-matches-nothing", object: "BGPPeer(p)", setting: "BGPPeer(p) spec.peerSelector" }],
  });
  expect((await line.run("doctor", "-o", "yaml")).code).toBe(2);
  expect((await line.run("doctor", "more")).code).toBe(2);
  line.env["DATASTORE_TYPE"] = "none-of-ours";
  expect((await line.run("doctor")).code).toBe(1);
});

test("doctor --from reads a folder", async () => {
  using line = new CommandLine();
  line.file("cluster/nodes.yaml", [node("n1", "10.0.0.1"), node("n2", "10.0.0.1")].join("---\n"));
  const answer = await line.run("doctor", "--from", `${line.folder}/cluster`);
  expect(answer).toMatchObject({ code: 3, out: expect.stringContaining("nodes n1 and n2 both carry 10.0.0.1") });
});
