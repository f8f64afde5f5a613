// Tests calicoctl on the Kubernetes datastore: the migration of a cluster from etcd, and commands recorded with Calico.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { CommandLine } from "../../src/calicoctl/testing/command-line.ts";
import { openDatastore } from "../../src/datastore/index.ts";
import { parseCidr } from "../../src/lib/ip/ip.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { type ApiServer, startApiServer } from "./api-server.ts";
import { found, suite } from "./available.ts";

let server: ApiServer;
beforeAll(async () => {
  if ("missing" in found) return;
  server = await startApiServer(found.path);
}, 600_000);
afterAll(async () => await server?.[Symbol.asyncDispose]());

const v3 = (kind: string, name: string, spec: object, namespace?: string) =>
  JSON.stringify({ apiVersion: "projectcalico.org/v3", kind, metadata: { name, namespace }, spec });

function onKubernetes(): CommandLine {
  const line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "kubernetes";
  line.env["KUBECONFIG"] = server.kubeconfig;
  line.timeoutMs = 10_000;
  return line;
}

async function create(path: string, body: object): Promise<void> {
  const answer = await fetch(`${server.url}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.adminToken}`, "content-type": "application/json" },
    tls: { rejectUnauthorized: false },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
}

suite("TC-C42 a cluster is migrated from etcd to the Kubernetes API: resources, cluster GUID and addresses, once", async () => {
  await using etcd = await EtcdServer.start();
  using old = new CommandLine();
  old.env["DATASTORE_TYPE"] = "etcdv3";
  old.env["ETCD_ENDPOINTS"] = etcd.url;
  await old.given(
    v3("Node", "n1", {
      bgp: { ipv4Address: "10.0.0.1/24", asNumber: 64999 },
      orchRefs: [{ nodeName: "kn1", orchestrator: "k8s" }],
    }),
    v3("Node", "gone", { orchRefs: [{ nodeName: "kgone", orchestrator: "k8s" }] }),
    v3("IPPool", "pods", { cidr: "10.1.0.0/16" }),
    v3("Tier", "security", { order: 100 }),
    v3("GlobalNetworkPolicy", "deny", { tier: "security", order: 5, selector: "all()", types: ["Ingress"] }),
    v3("NetworkPolicy", "web", { selector: "app == 'web'", ingress: [{ action: "Allow" }] }, "ns1"),
    v3("FelixConfiguration", "node.n1", { logSeverityScreen: "Debug" }),
    v3("GlobalNetworkSet", "set", { nets: ["10.0.0.0/8"] }),
  );
  const store = await openDatastore(etcd.config);
  const cidr = parseCidr("10.1.0.0/30");
  const sequences = { sequenceNumber: 9223372036854775807n, sequenceNumberForAllocation: { "0": 9n } };
  const allocations = { allocations: [0, null, null, null], unallocated: [1, 2, 3], attributes: [{ handleId: "h" }] };
  await store.create({
    key: { type: "block", cidr },
    value: { cidr, affinity: "host:n1", ...allocations, deleted: false, ...sequences },
  });
  await store.create({
    key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr },
    value: { state: "confirmed", deleted: false },
  });
  await store.create({
    key: { type: "ipamHandle", handleId: "h" },
    value: { handleId: "h", block: { [cidr]: 1 }, deleted: false },
  });
  await store.close();
  await old.run("datastore", "migrate", "lock");
  const exported = await old.run("datastore", "migrate", "export");
  expect(exported).toMatchObject({ code: 0, err: "" });

  await create("/api/v1/nodes", { metadata: { name: "kn1" } });
  await create("/api/v1/namespaces", { metadata: { name: "ns1" } });
  using line = onKubernetes();
  const imported = await line.pipe(exported.out, "datastore", "migrate", "import", "-f", "-");
  expect(imported.err).toBe("");
  expect(imported.code).toBe(0);
  expect(imported.out).toContain("[WARNING] Skipped node kgone: Kubernetes has no such node\n");
  expect(imported.out).toContain("Successfully applied 3 IPAM resource(s)\n");

  const get = async (...args: string[]) => JSON.parse((await line.run("get", ...args, "-o", "json")).out);
  expect((await get("ippool", "pods")).spec).toMatchObject({ cidr: "10.1.0.0/16" });
  expect((await get("gnp", "deny")).spec).toMatchObject({ tier: "security", order: 5 });
  expect((await get("np", "web", "-n", "ns1")).spec).toMatchObject({ selector: "app == 'web'" });
  expect((await get("node", "kn1")).spec.bgp).toMatchObject({ asNumber: 64999, ipv4Address: "10.0.0.1/24" });
  expect((await get("felixconfig", "node.kn1")).spec).toMatchObject({ logSeverityScreen: "Debug" });
  const identity = (await get("clusterinfo", "default")).spec;
  expect(identity).toMatchObject({ datastoreReady: false });
  expect(exported.out).toContain(identity.clusterGUID);
  const kubernetes = await openDatastore({
    type: "kubernetes",
    kubeconfig: server.kubeconfig,
    insecureSkipTlsVerify: false,
    disableNodePoll: false,
    usePodCidr: false,
  });
  const block = await kubernetes.get({ type: "block", cidr });
  expect(block.value).toMatchObject({ affinity: "host:kn1", sequenceNumber: 9223372036854775807n });
  expect((await kubernetes.list({ type: "ipamHandle" })).items).toHaveLength(1);
  await kubernetes.close();

  const again = await line.pipe(exported.out, "datastore", "migrate", "import", "-f", "-");
  expect(again).toMatchObject({ code: 1, out: "" });
  expect(again.err).toStartWith("Datastore already has Calico resources: Found existing Calico ");
  expect((await line.run("datastore", "migrate", "unlock")).out).toBe("Datastore unlocked.\n");
}, 120_000);

suite("a missing context is reported", async () => {
  using line = onKubernetes();
  const answer = await line.run("get", "nodes", "--context", "nowhere");
  expect(answer.code).toBe(1);
  expect(answer.err + answer.out).toContain("nowhere");
});

// The recordings of Calico are not part of this project. They are read if they exist next to the checkout.
const recorded = join(import.meta.dir, "../../../shared/golden/calicoctl/kubernetes/commands.json");
interface Recording {
  readonly name: string;
  readonly args: readonly string[];
  readonly stdin?: string;
  readonly exitCode: number;
  readonly stdout: string;
  readonly master?: { readonly stdout?: string; readonly exitCode?: number };
}
/** Not compared: how kubectl wrote one object, the version string, and a check with a text of its own. */
const APART = new Set(["get clusterinfo", "version", "ipam check empty"]);

if (!existsSync(recorded))
  test.skip("recorded commands: ../shared/golden is not beside this checkout", () => {}); // nothing to read
else
  suite("commands recorded on the Kubernetes datastore have the same output", async () => {
    using line = onKubernetes();
    await create("/api/v1/nodes", {
      metadata: { name: "n1", labels: { rack: "r1" } },
      spec: { podCIDR: "10.244.1.0/24", podCIDRs: ["10.244.1.0/24", "fd00:244:1::/64"] },
    });
    await create("/api/v1/namespaces", { metadata: { name: "recorded", labels: { team: "a" } } });
    const { cases } = JSON.parse(readFileSync(recorded, "utf8")) as { cases: readonly Recording[] };
    // All commands were recorded on one cluster: the output of the first ones contains resources of an earlier round.
    for (const name of ["patch node", "label node"])
      await line.run(...(cases.find((c) => c.name === name)?.args ?? []));
    for (const recording of cases) {
      if (APART.has(recording.name)) continue;
      const args = recording.args.map((arg) => arg.replace("kns.ns1", "kns.recorded"));
      const only = args.join(" ") === "get nodes -o wide" ? ["get", "nodes", "n1", "-o", "wide"] : args;
      const answer = await line.pipe(recording.stdin ?? "", ...only);
      const wanted = [recording, { ...recording, ...recording.master }].map((r) => [r.exitCode, plain(r.stdout)]);
      expect([recording.name, wanted]).toEqual([
        recording.name,
        expect.arrayContaining([[answer.code, plain(answer.out)]]),
      ]);
      expect(answer.code === 0 || answer.err !== "").toBe(true);
    }
  }, 60_000);

/** Replaces the values that differ in each run. */
function plain(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "UID")
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, "TIME")
    .replace(/resourceVersion: .*/g, "resourceVersion: RV")
    .replaceAll("recorded", "ns1")
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n");
}
