// Replays recordings of calicoctl on the Kubernetes datastore: its output, and the resulting custom resources.
import { afterAll, beforeAll } from "bun:test";
import { load, loadAll } from "js-yaml";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { type Cluster, isAvailable, startCluster } from "./cluster.ts";
import { type Json, listRecordings, normalized, normalizedJson, readRecording, replay } from "./replay.ts";

interface Written {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}
interface StoredCase extends Written {
  readonly name: string;
  readonly objects: Readonly<Record<string, Json>>;
}

let cluster: Cluster;
beforeAll(async () => {
  if (isAvailable) cluster = await startCluster({ namespaces: [] });
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

/** Kinds that the first write may create in addition. */
const INITIAL = /^(clusterinformations\/default|tiers\/(default|kube-admin|kube-baseline))$/;

async function customResources(): Promise<Record<string, Json>> {
  const found: Record<string, Json> = {};
  for (const object of await cluster.customResources()) {
    const { plural, name, value } = object;
    if (!INITIAL.test(`${plural}/${name}`)) found[`${plural}/${name}`] = value;
  }
  return normalizedJson(found);
}

replay("kubernetes-datamodel", "datamodel/kubernetes", async (score) => {
  for (const file of listRecordings("datamodel/kubernetes")) {
    const recorded = readRecording<{ kind: string; cases: StoredCase[]; master?: StoredCase[] }>(
      `datamodel/kubernetes/${file}`,
    );
    const inputs = readRecording<{ cases: { name: string; input: string; setup?: string }[] }>(`datamodel/${file}`);
    const cases = new Set([...recorded.cases, ...(recorded.master ?? [])].map(({ name }) => name));
    for (const name of cases) {
      const versions = [...recorded.cases, ...(recorded.master ?? [])].filter((one) => one.name === name);
      const given = inputs.cases.find((one) => one.name === name);
      if (given === undefined) continue;
      for (const text of [given.input, given.setup ?? ""]) await makeNamespaces(text);
      if (given.setup !== undefined) await cluster.calicoctl(["apply", "-f", "-"], given.setup);
      const before = await customResources();
      const answer = await cluster.calicoctl(["create", "-f", "-"], given.input);
      const after = await customResources();
      const appeared = Object.fromEntries(Object.entries(after).filter(([key]) => !(key in before)));
      const what = `${recorded.kind}/${name}`;
      score.same(
        `${what} exit code`,
        versions.map(({ exitCode }) => exitCode),
        answer.exitCode,
      );
      score.same(
        `${what} output`,
        versions.map(({ stdout }) => stdout.toLowerCase().trim()),
        answer.stdout.toLowerCase().trim(),
      );
      score.same(
        `${what} objects`,
        versions.map(({ objects }) => objects),
        appeared,
      );
      await cluster.clear();
    }
  }
});

/** Creates the namespaces, which must exist before their resources. */
async function makeNamespaces(text: string): Promise<void> {
  const documents = loadAll(text).flatMap((document) => (Array.isArray(document) ? document : [document]));
  for (const document of documents as ({ metadata?: { namespace?: string }; items?: unknown[] } | null)[]) {
    const all = [document, ...((document?.items ?? []) as (typeof document)[])];
    for (const one of all) {
      const name = one?.metadata?.namespace;
      if (name !== undefined && name !== "") await cluster.put("/api/v1/namespaces", { metadata: { name } });
    }
  }
}

interface CommandCase extends Written {
  readonly name: string;
  readonly args: readonly string[];
  readonly stdin?: string;
  readonly master?: Partial<Written>;
}

replay("kubernetes-calicoctl", "calicoctl/kubernetes", async (score) => {
  await cluster.clear();
  // The state after the commands that were removed from the recording.
  const annotations = {
    "projectcalico.org/labels": '{"a":"b"}',
    "projectcalico.org/RouteReflectorClusterID": "1.0.0.1",
  };
  await cluster.put<KubeObject>("/api/v1/nodes", {
    metadata: { name: "n1", labels: { rack: "r1" }, annotations },
    spec: { podCIDR: "10.244.1.0/24", podCIDRs: ["10.244.1.0/24", "fd00:244:1::/64"] },
  });
  await cluster.put("/apis/crd.projectcalico.org/v1/clusterinformations", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "ClusterInformation",
    metadata: { name: "default", annotations: { [LAST_APPLIED]: APPLIED } },
    spec: { clusterGUID: "GUID", clusterType: "k8s,kdd", datastoreReady: true },
  });
  await cluster.put("/api/v1/namespaces", { metadata: { name: "ns1", labels: { team: "a" } } });
  const { cases } = readRecording<{ cases: CommandCase[] }>("calicoctl/kubernetes/commands.json");
  for (const recorded of cases) {
    const answer = await cluster.calicoctl(recorded.args, recorded.stdin ?? "");
    const versions = [recorded, { ...recorded, ...recorded.master }];
    score.same(
      `${recorded.name} exit code`,
      versions.map(({ exitCode }) => exitCode),
      answer.exitCode,
    );
    score.same(
      `${recorded.name} output`,
      versions.map(({ stdout }) => comparable(stdout)),
      comparable(answer.stdout),
    );
    if (recorded.stderr !== "") score.check(`${recorded.name} prints a reason`, answer.stderr.trim() !== "");
  }
});

/** The recorded object was created with kubectl, which adds this annotation. */
const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";
const APPLIED = `${JSON.stringify({
  apiVersion: "crd.projectcalico.org/v1",
  kind: "ClusterInformation",
  metadata: { annotations: {}, name: "default" },
  spec: { calicoVersion: "", clusterGUID: "GUID", clusterType: "k8s,kdd", datastoreReady: true },
})}\n`;

/** Compares documents by content, and other output by line; versions are replaced, because the recorded builds have none. */
function comparable(text: string): unknown {
  if (!text.startsWith("apiVersion:"))
    return text
      .trimEnd()
      .split("\n")
      .map((line) => line.replace(/^(Client Version:|Git commit:).*/, "$1").trimEnd());
  return withoutManagedFields(load(normalized(text.replace(/resourceVersion: .*/g, "resourceVersion: RV"))) as Json);
}

/** Removes managedFields and generation, which the API server sets and which differ in each run. */
function withoutManagedFields(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutManagedFields);
  if (typeof value !== "object" || value === null) return value;
  const { generation: _, managedFields: __, ...rest } = value;
  return Object.fromEntries(Object.entries(rest).map(([name, inner]) => [name, withoutManagedFields(inner)]));
}
