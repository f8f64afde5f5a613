// Changes a conformance cluster and lists its resources: directly in the datastore, or with kubectl, where policies, pods and
// namespaces are Kubernetes objects or custom resources.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, type Datastore, NotFound, openDatastore, openSqlite } from "../../src/datastore/index.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { ADMIN } from "../../src/lab/kubernetes/control-plane.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { endpointName } from "../../src/lab/pods.ts";
import { type KindName, networkPolicyFromKubernetes, type Resource } from "../../src/model/index.ts";
import { STATE_KINDS } from "../../src/policy/index.ts";
import { NAMED_PORTS, NAMESPACES, type Step } from "./cases.ts";
import { forwardToApiServer } from "./api-server-forwarder.ts";

type PodLabels = NonNullable<Step["podLabels"]>;
type NamespaceLabels = NonNullable<Step["namespaceLabels"]>;

export interface ClusterEditor extends AsyncDisposable {
  apply(resources: readonly Resource[]): Promise<void>;
  /** Ignores resources that do not exist. */
  remove(resources: readonly Resource[]): Promise<void>;
  /** Sets the default labels and ports of pods and namespaces, plus the labels of a step. */
  setLabels(podLabels: PodLabels, namespaceLabels: NamespaceLabels): Promise<void>;
  /** Lists all resources that affect policy. */
  resources(): Promise<readonly Resource[]>;
}

const podName = (pod: { readonly namespace: string; readonly name: string }): string => `${pod.namespace}/${pod.name}`;

export async function datastoreEditor(lab: Lab): Promise<ClusterEditor> {
  const store = await openSqlite(join(lab.folder.shared, "calico.db"));
  const client = new Client(store);
  /** The resource as the controllers store it. */
  const stored = (resource: Resource): Resource =>
    resource.kind === "KubernetesNetworkPolicy" ? networkPolicyFromKubernetes(resource, () => {}) : resource;
  return {
    async apply(resources) {
      for (const resource of resources) await client.apply(stored(resource));
    },
    async remove(resources) {
      for (const resource of resources) {
        const { kind, metadata } = stored(resource);
        const { name, namespace } = metadata;
        try {
          await client.delete({ kind, name, namespace });
        } catch (error) {
          if (!(error instanceof NotFound)) throw error;
        }
      }
    },
    async setLabels(podLabels, namespaceLabels) {
      for (const namespace of NAMESPACES) {
        const own = { "projectcalico.org/name": namespace, ns: namespace, ...namespaceLabels[namespace] };
        const labelsToApply = Object.fromEntries(Object.entries(own).map(([key, value]) => [`pcns.${key}`, value]));
        const profile = await client.get({ kind: "Profile", name: `kns.${namespace}` });
        await client.update({ ...profile, spec: { ...(profile.spec as object), labelsToApply } } as Resource);
      }
      for (const pod of lab.record.pods) {
        const name = { kind: "WorkloadEndpoint" as const, name: endpointName(pod), namespace: pod.namespace };
        const endpoint = await client.get(name);
        const labels = {
          "projectcalico.org/namespace": pod.namespace,
          "projectcalico.org/orchestrator": "k8s",
          pod: pod.name,
          ns: pod.namespace,
          ...podLabels[podName(pod)],
        };
        const metadata = { ...endpoint.metadata, labels };
        await client.update({ ...endpoint, metadata, spec: { ...(endpoint.spec as object), ports: NAMED_PORTS } });
      }
    },
    resources: () => listed(client, store, STATE_KINDS, []),
    [Symbol.asyncDispose]: () => store.close(),
  };
}

export async function kubectlEditor(lab: Lab): Promise<ClusterEditor> {
  const cluster = new KubernetesCluster(lab);
  const forwarder = forwardToApiServer(lab);
  const kubeconfig = join(lab.folder.path, "forwarder.kubeconfig");
  const certificate = cluster.authority.issue(ADMIN);
  writeFileSync(kubeconfig, kubeconfigOf(forwarder.url, cluster.authority.certFile, certificate), { mode: 0o600 });
  const store = await openDatastore({
    type: "kubernetes",
    kubeconfig,
    insecureSkipTlsVerify: false,
    disableNodePoll: false,
    usePodCidr: false,
    clientQps: 1000,
    clientBurst: 1000,
  });
  const client = new Client(store);
  const list = (items: readonly object[]): string => JSON.stringify({ apiVersion: "v1", kind: "List", items });
  const apply = (manager: string, objects: readonly object[]) =>
    cluster.kubectl(
      ["apply", "--server-side", "--force-conflicts", `--field-manager=${manager}`, "-f", "-"],
      list(objects),
    );
  return {
    async apply(resources) {
      if (resources.length > 0) apply("conformance", resources.map(asKubectlObject));
    },
    async remove(resources) {
      const objects = list(resources.map(asKubectlObject));
      if (resources.length > 0) cluster.kubectl(["delete", "--ignore-not-found", "--wait=false", "-f", "-"], objects);
    },
    async setLabels(podLabels, namespaceLabels) {
      const namespaces = NAMESPACES.map((name) => {
        const metadata = { name, labels: { ns: name, ...namespaceLabels[name] } };
        return { apiVersion: "v1", kind: "Namespace", metadata };
      });
      const pods = lab.record.pods.map((pod) => {
        const labels = { pod: pod.name, ns: pod.namespace, ...podLabels[podName(pod)] };
        return { apiVersion: "v1", kind: "Pod", metadata: { name: pod.name, namespace: pod.namespace, labels } };
      });
      apply("dress", [...namespaces, ...pods]);
    },
    resources: () => listed(client, store, STATE_KINDS, ["KubernetesNetworkPolicy", "KubernetesEndpointSlice"]),
    async [Symbol.asyncDispose]() {
      await store.close();
      forwarder[Symbol.dispose]();
    },
  };
}

async function listed(client: Client, store: Datastore, kinds: readonly KindName[], raw: readonly KindName[]) {
  const lists = await Promise.all([
    ...kinds.map(async (kind) => (await client.list({ kind })).items as readonly Resource[]),
    ...raw.map(async (kind) => {
      const { items } = await store.list({ type: "resource", kind });
      return items.map((item) => item.value as Resource);
    }),
  ]);
  return lists.flat();
}

/** The object as a user of kubectl would write it. */
function asKubectlObject({ kind, metadata, spec }: Resource): object {
  if (kind === "KubernetesNetworkPolicy")
    return { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata, spec };
  if (kind === "KubernetesService") return { apiVersion: "v1", kind: "Service", metadata, spec };
  if (kind === "KubernetesEndpointSlice")
    return { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata, ...(spec as object) };
  return { apiVersion: "crd.projectcalico.org/v1", kind, metadata, spec };
}

function kubeconfigOf(
  server: string,
  ca: string,
  own: { readonly certFile: string; readonly keyFile: string },
): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "lab",
    clusters: [{ name: "lab", cluster: { server, "certificate-authority": ca } }],
    users: [{ name: "admin", user: { "client-certificate": own.certFile, "client-key": own.keyFile } }],
    contexts: [{ name: "lab", context: { cluster: "lab", user: "admin" } }],
  });
}
