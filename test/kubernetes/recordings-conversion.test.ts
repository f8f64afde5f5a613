// Replays recordings of the conversion of Kubernetes objects: calicoctl's output, and Felix's messages to its dataplane.
import { afterAll, beforeAll } from "bun:test";
import { type Datastore, openDatastore } from "../../src/datastore/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { CLUSTER_NETWORK_POLICY } from "./cluster-network-policy.ts";
import { type Cluster, isAvailable, placeOf, startCluster } from "./cluster.ts";
import { FelixPipeline, showRecorded } from "./felix-pipeline.ts";
import { isSame, type Json, normalizedJson, readRecording, replay, type Score } from "./replay.ts";

interface Message {
  readonly tag: number;
  readonly type: string;
  readonly raw?: string;
}
type Kube = KubeObject & { readonly status?: unknown };
const FOLDER = "kubernetes/conversion";
const MERGE = "application/merge-patch+json";

let cluster: Cluster;
let store: Datastore;
beforeAll(async () => {
  if (!isAvailable) return;
  const ranges = () => ["--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108"];
  cluster = await startCluster({ namespaces: [], flags: ranges });
  store = await openDatastore(cluster.config);
  await cluster.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CLUSTER_NETWORK_POLICY);
}, 600_000);
afterAll(async () => {
  await store?.close();
  await cluster?.[Symbol.asyncDispose]();
});

const namespace = (name: string, labels: Record<string, string> = {}): Kube => ({
  kind: "Namespace",
  metadata: { name, labels },
});
const pathOf = (object: KubeObject): string => `${placeOf(object)}/${object.metadata.name}`;
const withoutRevision = (value: unknown): Json => {
  const text = JSON.stringify(value).replace(/"resourceVersion":"[^"]*"/g, '"resourceVersion":"RV"');
  return normalizedJson(JSON.parse(text) as Json);
};

replay("kubernetes-conversion profiles", FOLDER, async (score) => {
  interface ProfileCase {
    readonly name: string;
    readonly kubernetes: Kube | null;
    readonly listed: Json;
  }
  const recorded = readRecording<{ cases: ProfileCase[]; errors: { name: string }[] }>(`${FOLDER}/profiles.json`);
  for (const { kubernetes } of recorded.cases) if (kubernetes?.kind === "Namespace") await cluster.apply(kubernetes);
  for (const { kubernetes } of recorded.cases)
    if (kubernetes?.kind === "ServiceAccount") await cluster.apply(kubernetes);
  const { stdout } = await cluster.calicoctl(["get", "profiles", "-o", "json"]);
  const { items } = JSON.parse(stdout) as { items: { metadata: { name: string } }[] };
  for (const { name, listed } of recorded.cases) {
    const found = items.find(({ metadata }) => metadata.name === name);
    score.same(name, [listed], withoutRevision(found ?? null));
    const one = await cluster.calicoctl(["get", "profile", name, "-o", "json"]);
    score.same(`${name} alone`, [listed], withoutRevision(JSON.parse(one.stdout)));
  }
  for (const { name } of recorded.errors) {
    const { exitCode, stderr } = await cluster.calicoctl(["get", "profile", name, "-o", "json"]);
    score.check(`${name} is refused`, exitCode === 1 && stderr.trim() !== "", 1, { exitCode, stderr });
  }
});

replay("kubernetes-conversion pods", FOLDER, async (score) => {
  interface PodCase {
    readonly name: string;
    readonly kubernetes: Kube;
    readonly then?: string;
    readonly workloadEndpoints: Json[];
  }
  await cluster.put("/api/v1/namespaces", { metadata: { name: "ns2" } });
  for (const { name, kubernetes, then, workloadEndpoints } of readRecording<{ cases: PodCase[] }>(`${FOLDER}/pods.json`)
    .cases) {
    const path = pathOf(kubernetes);
    // An object that must be seen while it is deleted needs a finalizer.
    const finalizers = then === undefined ? {} : { finalizers: ["example.com/hold"] };
    await cluster.apply({ ...kubernetes, metadata: { ...kubernetes.metadata, ...finalizers } });
    if (then !== undefined) await cluster.delete(path);
    const args = ["get", "workloadendpoints", "-n", kubernetes.metadata.namespace ?? "", "-o", "json"];
    const { stdout } = await cluster.calicoctl(args);
    const { items } = JSON.parse(stdout) as { items: Json[] };
    score.same(name, [workloadEndpoints], withoutRevision(items));
    if (then !== undefined)
      await cluster.api.json({ method: "PATCH", path, body: { metadata: { finalizers: null } }, contentType: MERGE });
    await cluster.delete(path);
  }
});

replay("kubernetes-conversion nodes", FOLDER, async (score) => {
  interface NodeCase {
    readonly name: string;
    readonly kubernetes: Kube;
    readonly node?: Json;
    readonly withUSE_POD_CIDR?: Json;
  }
  for (const recorded of readRecording<{ cases: NodeCase[] }>(`${FOLDER}/nodes.json`).cases) {
    const { name, kubernetes, node } = recorded;
    await cluster.apply(kubernetes);
    const get = async (env = {}) => {
      const args = ["get", "node", kubernetes.metadata.name, "-o", "json"];
      return withoutRevision(JSON.parse((await cluster.calicoctl(args, "", env)).stdout));
    };
    // Calico panics here; calico-ts must not.
    if (node === undefined) score.check(name, isSame(((await get()) as { kind?: string }).kind, "Node"), "a Node");
    else {
      score.same(name, [node], await get());
      score.same(`${name} with USE_POD_CIDR`, [recorded.withUSE_POD_CIDR ?? node], await get({ USE_POD_CIDR: "true" }));
    }
  }
});

replay("kubernetes-conversion node writes", FOLDER, async (score) => {
  interface WriteCase {
    readonly name: string;
    readonly command: string[];
    readonly stdin: string | null;
    readonly exitCode: number;
    readonly output: string;
    readonly after: { readonly labels: Json; readonly annotations: Json } | null;
  }
  for (const recorded of readRecording<{ cases: WriteCase[] }>(`${FOLDER}/node-writes.json`).cases) {
    const answer = await cluster.calicoctl(recorded.command, recorded.stdin ?? "");
    score.same(`${recorded.name} exit code`, [recorded.exitCode], answer.exitCode);
    if (recorded.exitCode === 0) score.same(`${recorded.name} output`, [recorded.output], answer.stdout);
    if (recorded.after === null) continue;
    const name = recorded.command.includes("-f") ? "labels" : "plain";
    const { labels = {}, annotations = {} } = (await cluster.api.get<KubeObject>(`/api/v1/nodes/${name}`)).metadata;
    score.same(`${recorded.name} labels`, [recorded.after.labels], labels);
    score.same(`${recorded.name} annotations`, [recorded.after.annotations], annotations);
  }
});

/** Waits for a limited time until the messages are as recorded, then compares them. */
async function expectMessages(score: Score, what: string, felix: FelixPipeline, recorded: readonly Message[]) {
  const wanted = recorded.flatMap(({ tag, raw }) => (raw === undefined ? [] : [showRecorded(tag, raw)])).sort();
  await eventually(() => isSame(felix.formatted(), wanted), wanted.length === 0 ? 200 : 1500).catch(() => {});
  // A wrong additional message may arrive later.
  score.same(what, [wanted], felix.take());
}

const pod = (namespace: string, name: string, ips: readonly string[], labels: Record<string, string>): Kube =>
  ({
    kind: "Pod",
    metadata: { name, namespace, labels },
    spec: { nodeName: "n2", containers: [{ name: "c", image: "i" }] },
    status: { phase: "Running", podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) },
  }) as Kube;

async function startFelix(localLabels: Record<string, string>): Promise<FelixPipeline> {
  await cluster.apply({
    kind: "Node",
    metadata: { name: "n1", annotations: { "projectcalico.org/IPv4Address": "10.0.0.1/24" } },
  });
  await cluster.put("/apis/crd.projectcalico.org/v1/ippools", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPPool",
    metadata: { name: "p4" },
    spec: { cidr: "10.65.0.0/16" },
  });
  await cluster.apply(namespace("ns1", { team: "a" }));
  await cluster.apply(namespace("teama", { team: "a", x: "1", n: "1" }));
  await cluster.calicoctl(["apply", "-f", "-"], TIERS);
  await cluster.apply(pod("ns1", "fe", ["10.65.1.1"], { app: "fe", a: "1" }));
  await cluster.apply(pod("teama", "fe2", ["10.65.1.2", "fd00:65::12"], { app: "fe", p: "z" }));
  const local = readRecording<{ kubernetes: Kube }>(`${FOLDER}/felix-local-pod.json`).kubernetes;
  await cluster.apply({ ...local, metadata: { ...local.metadata, labels: localLabels } });
  const felix = new FelixPipeline(store, "n1");
  await eventually(() => felix.isInSync, 10_000);
  return felix;
}

interface LabelsMessage extends Message {
  readonly body: {
    readonly "1.id": { readonly "1.namespace"?: string; readonly "1.name"?: string; readonly "2.name"?: string };
    readonly "2.labels": Record<string, string>;
  };
}

/** Creates the namespaces and service accounts that the recorded messages contain. */
async function createLabelled(messages: readonly Message[]): Promise<void> {
  for (const kind of ["Namespace", "ServiceAccount"])
    for (const message of messages.filter(({ type }) => type === `${kind}Update`) as LabelsMessage[]) {
      const { "1.id": id, "2.labels": labels } = message.body;
      const { "projectcalico.org/name": name = "", ...own } = labels;
      const place = id["1.namespace"] === undefined ? {} : { namespace: id["1.namespace"] };
      await cluster.apply({ kind, metadata: { name, ...place, labels: own } });
    }
}

replay("kubernetes-conversion felix start", FOLDER, async (score) => {
  const start = readRecording<{ messages: Message[] }>(`${FOLDER}/felix-start.json`).messages;
  await createLabelled(start);
  await using felix = await startFelix({ t: "t" });
  const formatted = felix.take();
  const recorded = [...start, ...readRecording<{ messages: Message[] }>(`${FOLDER}/felix-local-pod.json`).messages];
  // Felix's settings and encapsulation do not come from Kubernetes.
  for (const { tag, type, raw } of recorded)
    if (raw !== undefined && type !== "ConfigUpdate")
      score.check(`${type} ${raw}`, formatted.includes(showRecorded(tag, raw)), showRecorded(tag, raw));
});

interface PolicyCase {
  readonly name: string;
  readonly kubernetes: Kube | Kube[];
  readonly localPodLabels?: Record<string, string>;
  readonly onCreate?: Message[];
  readonly onDelete?: Message[];
  readonly refusedByKubernetes?: unknown;
}

/** Creates and deletes each object. */
async function createAndDelete(
  score: Score,
  cases: readonly PolicyCase[],
  labels: Record<string, string>,
): Promise<void> {
  await using felix = await startFelix(labels);
  felix.take();
  let present = labels;
  for (const recorded of cases) {
    if (recorded.onCreate === undefined) continue;
    const wanted = recorded.localPodLabels ?? labels;
    if (!isSame(present, wanted)) {
      const local = readRecording<{ kubernetes: Kube }>(`${FOLDER}/felix-local-pod.json`).kubernetes;
      const gone = Object.fromEntries(Object.keys(present).map((key) => [key, null]));
      const body = { metadata: { labels: { ...gone, ...wanted } } };
      await cluster.api.json({ method: "PATCH", path: pathOf(local), body, contentType: MERGE });
      present = wanted;
      await Bun.sleep(60);
      felix.take();
    }
    const objects = [recorded.kubernetes].flat();
    for (const object of objects) await cluster.apply(object);
    await expectMessages(score, `${recorded.name} appears`, felix, recorded.onCreate);
    for (const object of objects) await cluster.delete(pathOf(object));
    await expectMessages(score, `${recorded.name} goes`, felix, recorded.onDelete ?? []);
  }
}

replay("kubernetes-conversion felix policies", FOLDER, async (score) => {
  await createAndDelete(score, readRecording<{ cases: PolicyCase[] }>(`${FOLDER}/felix-policies.json`).cases, {
    t: "t",
  });
});
replay("kubernetes-conversion felix cluster policies", FOLDER, async (score) => {
  const { cases } = readRecording<{ cases: PolicyCase[] }>(`${FOLDER}/felix-cluster-network-policies.json`);
  await createAndDelete(score, cases, { app: "web", t: "t" });
});
replay("kubernetes-conversion felix services", FOLDER, async (score) => {
  const { cases } = readRecording<{ cases: PolicyCase[] }>(`${FOLDER}/felix-services.json`);
  await createAndDelete(score, cases.map(withRecordedAddresses), { t: "t" });
});

/** Requests the address that the recorded API server chose, because this one would choose another. */
function withRecordedAddresses(recorded: PolicyCase): PolicyCase {
  const service = [recorded.kubernetes].flat()[0] as Kube & { readonly spec?: { readonly ipFamilyPolicy?: string } };
  const update = recorded.onCreate?.find(({ type }) => type === "ServiceUpdate") as
    | { readonly body: { readonly "4.cluster_ips"?: readonly string[] } }
    | undefined;
  const clusterIPs = update?.body["4.cluster_ips"] ?? [];
  if (service.spec?.ipFamilyPolicy === undefined || clusterIPs.length < 2) return recorded;
  return { ...recorded, kubernetes: { ...service, spec: { ...service.spec, clusterIPs } } as Kube };
}
replay("kubernetes-conversion felix endpoint slices", FOLDER, async (score) => {
  const { cases } = readRecording<{ cases: (PolicyCase & { calico?: string; messages?: Message[] })[] }>(
    `${FOLDER}/felix-endpointslices.json`,
  );
  const [first] = cases;
  await cluster.calicoctl(["apply", "-f", "-"], first?.calico ?? "");
  await createAndDelete(score, cases, { t: "t" });
  await cluster.calicoctl(["delete", "-f", "-"], first?.calico ?? "");
});

replay("kubernetes-conversion felix lifecycle", FOLDER, async (score) => {
  const { steps } = readRecording<{ steps: { do: string; messages: Message[] }[] }>(`${FOLDER}/felix-lifecycle.json`);
  await cluster.delete("/api/v1/namespaces/ns1/serviceaccounts/default");
  await using felix = await startFelix({ app: "web" });
  felix.take();
  const patch = async (path: string, body: object, subresource = "") => {
    await cluster.api.json({ method: "PATCH", path: path + subresource, body, contentType: MERGE });
  };
  const pods = "/api/v1/namespaces/ns1/pods";
  const account = { kind: "ServiceAccount", metadata: { name: "default", namespace: "ns1", labels: { sl: "1" } } };
  const policy = {
    kind: "NetworkPolicy",
    metadata: { name: "np1", namespace: "ns1" },
    spec: {
      podSelector: { matchLabels: { app: "web" } },
      ingress: [{ from: [{ podSelector: { matchLabels: { app: "fe" } } }], ports: [{ port: "web" }] }],
    },
  };
  const second = {
    "projectcalico.org/IPv4Address": "10.0.0.2/24",
    "projectcalico.org/IPv4VXLANTunnelAddr": "10.65.2.1",
  };
  const annotations = {
    "cni.projectcalico.org/floatingIPs": '["1.2.3.4"]',
    "kubernetes.io/ingress-bandwidth": "10M",
    "qos.projectcalico.org/dscp": "EF",
  };
  const actions: (() => Promise<void>)[] = [
    () => cluster.apply(policy),
    () => patch(`${pods}/local`, { metadata: { labels: { app: null } } }),
    () => patch(`${pods}/local`, { metadata: { labels: { app: "web" } } }),
    () => patch(`${pods}/fe`, { status: { phase: "Succeeded" } }, "/status"),
    () => patch(`${pods}/fe`, { status: { phase: "Running" } }, "/status"),
    () => cluster.delete(`${pods}/fe`),
    () => patch("/api/v1/namespaces/ns1", { metadata: { labels: { nl: "1" } } }),
    () => cluster.apply(account),
    () => cluster.apply({ ...account, metadata: { ...account.metadata, labels: { sl: "2" } } }),
    () => cluster.delete("/api/v1/namespaces/ns1/serviceaccounts/default"),
    () => patch(`${pods}/local`, { metadata: { annotations } }),
    () => patch(`${pods}/local`, { status: { phase: "Failed" } }, "/status"),
    () => cluster.delete(`${pods}/local`),
    () => cluster.delete(`${placeOf(policy)}/np1`),
    () =>
      cluster.apply({
        kind: "Node",
        metadata: { name: "n2", annotations: second },
        spec: { podCIDR: "10.244.2.0/24" },
      } as Kube),
    () => cluster.delete("/api/v1/nodes/n2"),
  ];
  for (const [i, step] of steps.entries()) {
    await actions[i]?.();
    await expectMessages(score, step.do, felix, step.messages);
  }
});

const TIERS = `apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: default}
spec: {order: 1000000, defaultAction: Deny}
`;
