import { expect, test } from "bun:test";
import { CommandLine } from "../testing/command-line.ts";

const v3 = (kind: string, name: string, spec: string, metadata = "") =>
  `apiVersion: projectcalico.org/v3\nkind: ${kind}\nmetadata: {name: ${name}${metadata}}\nspec: ${spec}\n`;
const pod = (name: string, ip: string, node: string) =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}, namespace: shop, labels: {app: ${name}}}\nspec: {nodeName: ${node}, containers: []}\nstatus: {podIP: ${ip}}\n`;
const NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: red}}\n";
const POLICY = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-only, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 5432}]
`;

function folder(line: CommandLine, ...documents: readonly string[]): string {
  const file = line.file("cluster/all.yaml", documents.join("---\n"));
  return file.slice(0, file.lastIndexOf("/"));
}

test("explain --from evaluates a directory of Kubernetes objects", async () => {
  using line = new CommandLine();
  const from = folder(
    line,
    NAMESPACE,
    pod("web", "10.0.0.1", "n1"),
    pod("db", "10.0.0.2", "n2"),
    pod("x", "10.0.0.3", "n2"),
    POLICY,
  );
  const allowed = await line.run("explain", "shop/web", "shop/db", "--port", "5432", "--from", from);
  expect(allowed).toMatchObject({ code: 0, err: "" });
  expect(allowed.out).toStartWith("tcp 10.0.0.1 → 10.0.0.2:5432: allowed\n");
  const denied = await line.run("explain", "x", "db", "-n", "shop", "-p", "5432", "--from", from);
  expect(denied.code).toBe(3);
  expect(denied.out).toBe(`tcp 10.0.0.3 → 10.0.0.2:5432: denied
  because workload shop/db ingress: denied by default: policies in tier default select this endpoint, and no rule allows the packet

1. workload shop/x, egress, on n2: allowed
   profile kns.shop
     rule 1 allow: matches
   → profile kns.shop, egress rule 1

2. workload shop/db, ingress, on n2: denied
   tier default
     KubernetesNetworkPolicy shop/web-only
       rule 1 allow: source workload shop/x does not match (projectcalico.org/namespace == "shop" && (projectcalico.org/orchestrator == "k8s" && app == "web"))
     end of tier: denied
   → denied by default: policies in tier default select this endpoint, and no rule allows the packet
`);
});

test("explain prints JSON, and accepts addresses and other protocols", async () => {
  using line = new CommandLine();
  const from = folder(line, NAMESPACE, pod("web", "10.0.0.1", "n1"), pod("db", "10.0.0.2", "n2"), POLICY);
  const answer = await line.run("explain", "8.8.8.8", "10.0.0.2", "--protocol", "icmp", "-o", "json", "--from", from);
  expect(answer.code).toBe(3);
  const verdict = JSON.parse(answer.out);
  expect(verdict).toMatchObject({ action: "deny", packet: { protocol: 1, icmp: { type: 8, code: 0 } } });
  expect(verdict.checkpoints[0].tiers[0].policies[0].rules[0].mismatch).toBe("protocol is icmp, want tcp");
});

test("explain reads the datastore", async () => {
  using line = new CommandLine();
  const endpoint = (name: string, ip: string) =>
    v3(
      "WorkloadEndpoint",
      `n1-k8s-${name}-eth0`,
      `{node: n1, orchestrator: k8s, pod: ${name}, endpoint: eth0, interfaceName: cali${name}, ipNetworks: [${ip}], profiles: [projectcalico-default-allow]}`,
      ", namespace: default",
    );
  await line.given(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2"));
  expect((await line.run("explain", "a", "b")).code).toBe(0);
  await line.given(v3("GlobalNetworkPolicy", "stop", "{selector: all(), ingress: [{action: Deny}]}"));
  const denied = await line.run("explain", "a", "b");
  expect(denied.code).toBe(3);
  expect(denied.out).toContain("GlobalNetworkPolicy stop in tier default, rule 1");
});

test("explain reports and skips invalid objects", async () => {
  using line = new CommandLine();
  const bad = v3("GlobalNetworkPolicy", "bad", "{selector: '=='}");
  const from = folder(
    line,
    NAMESPACE,
    pod("web", "10.0.0.1", "n1"),
    pod("db", "10.0.0.2", "n2"),
    bad,
    "kind: Deployment\napiVersion: apps/v1\n",
  );
  const answer = await line.run("explain", "shop/web", "shop/db", "--from", from);
  expect(answer.code).toBe(0);
  expect(answer.err).toMatch(
    /^Skipped: .*all\.yaml: document 4, line \d+: spec\.selector = '==' \(is not a selector: .*\)\n$/,
  );
});

test("explain: exit code 2 for wrong usage, 1 if the files cannot be read", async () => {
  using line = new CommandLine();
  const from = folder(line, NAMESPACE, pod("web", "10.0.0.1", "n1"));
  const wrong = [
    ["explain", "web"],
    ["explain", "nobody", "10.0.0.1"],
    ["explain", "10.0.0.1", "fd00::1"],
    ["explain", "10.0.0.1", "10.0.0.2", "--protocol", "nonsense"],
    ["explain", "10.0.0.1", "10.0.0.2", "--protocol", "icmp", "--port", "1"],
    ["explain", "10.0.0.1", "10.0.0.2", "--port", "70000"],
    ["explain", "10.0.0.1", "10.0.0.2", "-o", "yaml"],
  ];
  for (const words of wrong) {
    const answer = await line.run(...words, "--from", from);
    expect({ words, code: answer.code }).toEqual({ words, code: 2 });
    expect(answer.err).not.toBe("");
  }
  expect((await line.run("explain", "10.0.0.1", "10.0.0.2", "--from", "/nonexistent")).code).toBe(1);
});

test("explain colours its verdicts only on a terminal, and not if NO_COLOR is set", async () => {
  using line = new CommandLine();
  const from = folder(line, NAMESPACE, pod("x", "10.0.0.3", "n2"), pod("db", "10.0.0.2", "n2"), POLICY);
  const words = ["explain", "shop/x", "shop/db", "--port", "5432", "--from", from] as const;
  line.isTerminal = true;
  const coloured = (await line.run(...words)).out;
  expect(coloured).toStartWith("tcp 10.0.0.3 → 10.0.0.2:5432: \x1b[31mdenied\x1b[0m\n");
  expect(coloured).toContain("on n2: \x1b[32mallowed\x1b[0m\n");
  line.env["NO_COLOR"] = "1";
  const plain = (await line.run(...words)).out;
  expect(plain).toBe(coloured.replaceAll(/\x1b\[\d+m/g, ""));
});

test("explain adds notes about facts outside policy", async () => {
  using line = new CommandLine();
  const pool = (nat: boolean) => v3("IPPool", "pods", `{cidr: 10.0.0.0/24, natOutgoing: ${nat}}`);
  const misspelled = v3("NetworkPolicy", "db", "{selector: ap == 'db', types: [Ingress]}", ", namespace: shop");
  const given = (...more: readonly string[]) =>
    folder(line, NAMESPACE, pod("web", "10.0.0.1", "n1"), pod("db", "10.0.0.2", "n2"), ...more);
  const explain = async (from: string, ...words: readonly string[]) =>
    (await line.run("explain", ...words, "--from", from)).out;
  expect(await explain(given(pool(false)), "shop/web", "10.0.0.77")).toContain(
    "note: 10.0.0.77 is in pool pods, but no workload has it",
  );
  expect(await explain(given(pod("twin", "10.0.0.2", "n1")), "shop/web", "shop/db")).toContain(
    "10.0.0.2 is the address of 2 workloads (shop/db on n2, shop/twin on n1)",
  );
  expect(await explain(given(pool(false)), "shop/web", "192.0.2.1")).toContain("needs a route back to 10.0.0.0/24");
  expect(await explain(given(pool(true)), "shop/web", "192.0.2.1")).not.toContain("note:");
  expect(await explain(given(pool(false), misspelled), "shop/web", "shop/db")).toContain(
    "note: ingress policies of the namespace that do not select shop/db: NetworkPolicy shop/db (ap == 'db')",
  );
  expect(await explain(given(pool(false), misspelled), "shop/db", "shop/web")).toContain("do not select shop/web");
});
