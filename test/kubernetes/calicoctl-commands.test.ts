// Runs every command of calicoctl on the Kubernetes datastore, in an order in which a user might, and kubectl on the same
// resources.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { CLUSTER_NETWORK_POLICY } from "./cluster-network-policy.ts";
import { type Answer, type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

let cluster: Cluster;
const folder = mkdtempSync(join(tmpdir(), "kube-calicoctl-"));
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["shop"] });
  await cluster.put("/api/v1/nodes", {
    metadata: { name: "n1", annotations: { "projectcalico.org/IPv4Address": "192.0.2.5/24" } },
  });
  for (const [name, ip] of [
    ["frontend", "10.65.0.1"],
    ["backend", "10.65.0.2"],
  ] as const)
    await cluster.apply({
      kind: "Pod",
      metadata: { name, namespace: "shop", labels: { app: name } },
      spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
      status: { podIPs: [{ ip }] },
    } as Parameters<typeof cluster.apply>[0]);
  await cluster.put("/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies", {
    metadata: { name: "backend" },
    spec: {
      podSelector: { matchLabels: { app: "backend" } },
      ingress: [
        {
          from: [{ podSelector: { matchLabels: { app: "frontend" } } }],
          ports: [{ port: 80, protocol: "TCP" }],
        },
      ],
    },
  });
}, 600_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const resource = (kind: string, name: string, spec: object, namespace?: string) =>
  JSON.stringify({ apiVersion: "projectcalico.org/v3", kind, metadata: { name, namespace }, spec });

async function succeed(args: string, stdin = ""): Promise<string> {
  const answer = await cluster.calicoctl(args.split(" "), stdin);
  expect({ args, code: answer.exitCode, err: answer.exitCode === 0 ? "" : answer.stderr }).toEqual({
    args,
    code: 0,
    err: "",
  });
  return answer.stdout;
}
const run = (args: string, stdin?: string): Promise<Answer> => cluster.calicoctl(args.split(" "), stdin);

suite("resources: create, get, apply, replace, patch, label, delete, validate, convert", async () => {
  const pool = resource("IPPool", "pods", { cidr: "10.65.0.0/16", natOutgoing: true });
  expect(await succeed("create -f -", pool)).toContain("Successfully created 1 'IPPool'");
  expect((await run("create -f -", pool)).exitCode).toBe(1);
  expect(await succeed("get ippools")).toMatch(/^NAME +CIDR +SELECTOR +\npods +10\.65\.0\.0\/16 +all\(\)/);
  const policy = resource("GlobalNetworkPolicy", "p", {
    selector: "all()",
    types: ["Egress"],
    egress: [{ action: "Allow" }],
  });
  expect(await succeed("apply -f -", policy)).toContain("Successfully applied");
  expect(await succeed("replace -f -", policy)).toContain("Successfully replaced");
  expect(await succeed('patch gnp p -p {"spec":{"order":5}}')).toContain("Successfully patched");
  expect(await succeed("get gnp p -o wide")).toMatch(/default +p +5|p +default +5/);
  expect(await succeed("get gnp p -o json")).toContain('"order": 5');
  expect(await succeed("label gnp p team=blue")).toContain("Successfully set label");
  expect(await succeed("get gnp p -o yaml")).toContain("team: blue");
  expect(await succeed("delete gnp p")).toContain("Successfully deleted");
  expect(await succeed("get nodes -o wide")).toContain("192.0.2.5/24");
  expect(await succeed("get wep -n shop")).toContain("10.65.0.2/32");
  expect(await succeed("get profiles")).toContain("kns.shop");
  expect(await succeed("validate -f -", pool)).toContain("Successfully validated");
  const kubernetes = JSON.stringify({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "x", namespace: "shop" },
    spec: { podSelector: {} },
  });
  expect(await succeed("convert -f -", kubernetes)).toContain("projectcalico.org/orchestrator == 'k8s'");
}, 60_000);

suite("explain evaluates live pods, namespaces and network policies of Kubernetes", async () => {
  const allowed = await run("explain shop/frontend shop/backend --port=80");
  expect([allowed.exitCode, allowed.stderr]).toEqual([0, ""]);
  expect(allowed.stdout).toContain("allowed");
  const denied = await run("explain shop/frontend shop/backend --port=81");
  expect(denied.exitCode).toBe(3);
  expect(denied.stdout).toContain("denied");
  expect(denied.stdout).toContain("shop/backend");
  expect((await run("explain 203.0.113.9 shop/backend --port=80")).exitCode).toBe(3);
  expect((await run("explain shop/backend shop/frontend --port=80")).exitCode).toBe(0);
}, 60_000);

suite("ipam: show, check, configure, release, split", async () => {
  expect(await succeed("ipam configure --strictaffinity=true")).toContain("Successfully set StrictAffinity");
  expect(await succeed("ipam show --show-configuration")).toContain("true");
  await succeed("ipam configure --strictaffinity=false");
  expect(await succeed("ipam show")).toContain("10.65.0.0/16");
  expect(await succeed("ipam show --show-blocks")).toContain("IP Pool");
  expect((await run("ipam show --ip=10.65.0.1")).stdout).toContain("10.65.0.1");
  // Pods with addresses that IPAM did not assign are a finding.
  const check = await run(`ipam check -o ${join(folder, "report.json")}`);
  expect([0, 3]).toContain(check.exitCode);
  expect(check.stdout).toContain(
    "Found 2 in-use IPs that are in active IP pools but have no corresponding IPAM allocation",
  );
  expect([0, 1]).toContain((await run("ipam release --ip=10.65.0.99")).exitCode);
  await succeed("datastore migrate lock");
  expect(await succeed("ipam split 2 --cidr=10.65.0.0/16")).toContain("split");
  await succeed("datastore migrate unlock");
  expect(await succeed("get ippools")).toContain("10.65.128.0/17");
}, 60_000);

suite("the cluster: version, datastore, doctor, bgp plan, diagnostics", async () => {
  expect(await succeed("version")).toContain("Client Version");
  expect(await succeed("get clusterinformation default -o json")).toContain("kdd");
  expect(await succeed("datastore migrate-policy-names")).toContain("All policies already have their own names");
  expect((await run("datastore migrate export")).exitCode).toBe(1); // from etcd only
  const doctor = await run("doctor");
  expect([0, 3]).toContain(doctor.exitCode);
  expect(await succeed("bgp plan n1")).toContain("n1");
}, 60_000);

suite("doctor reports policies of Kubernetes that Felix does not enforce as they are written", async () => {
  await cluster.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CLUSTER_NETWORK_POLICY);
  const policy = {
    apiVersion: "policy.networking.k8s.io/v1alpha2",
    kind: "ClusterNetworkPolicy",
    metadata: { name: "to-nodes" },
    spec: {
      tier: "Admin",
      priority: 10,
      subject: { namespaces: { matchLabels: { team: "shop" } } },
      egress: [{ action: "Accept", to: [{ nodes: { matchLabels: { rack: "a" } } }] }],
    },
  };
  const isServed = () =>
    cluster.apply(policy).then(
      () => true,
      () => false,
    );
  await eventually(isServed, 20_000, "the API server serves ClusterNetworkPolicies");
  const { stdout, exitCode } = await run("doctor --no-host");
  expect(exitCode).toBe(3);
  expect(stdout).toContain("Kubernetes ClusterNetworkPolicy to-nodes is not enforced as it is written");
  expect(stdout).toContain("rule ignored");
}, 60_000);

suite("kubectl shows the same columns on the custom resources", async () => {
  const columns = async (plural: string) => {
    const answer = await fetch(`${cluster.server.url}/apis/crd.projectcalico.org/v1/${plural}`, {
      headers: {
        authorization: `Bearer ${cluster.server.adminToken}`,
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io",
      },
      tls: { rejectUnauthorized: false },
    });
    const { columnDefinitions } = (await answer.json()) as { columnDefinitions: { name: string }[] };
    return columnDefinitions.map(({ name }) => name);
  };
  const found = Object.fromEntries(
    await Promise.all(
      [
        "ippools",
        "tiers",
        "globalnetworkpolicies",
        "hostendpoints",
        "bgppeers",
        "blockaffinities",
        "clusterinformations",
      ].map(async (plural) => [plural, await columns(plural)] as const),
    ),
  );
  expect(found).toEqual({
    ippools: ["Name", "CIDR", "VXLAN", "IPIP", "NAT", "Allocatable", "Age"],
    tiers: ["Name", "Order", "DefaultAction", "Status"],
    globalnetworkpolicies: ["Name", "Tier", "Order", "Age"],
    hostendpoints: ["Name", "Node", "Interface"],
    bgppeers: ["Name", "Node Selector", "Node", "Local ASN", "Peer Selector", "Peer IP", "Peer ASN"],
    blockaffinities: ["Name", "CIDR", "Node", "Type"],
    clusterinformations: ["Name", "Version", "Ready", "Types"],
  });
});
