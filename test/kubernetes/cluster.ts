// Starts a cluster for the suites of this folder: an API server with Calico's custom resource definitions, a client with
// administrator rights, and the configuration for a driver.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { runCommandLine } from "../../src/calicoctl/index.ts";
import type { KubernetesConfig } from "../../src/datastore/index.ts";
import { resolveAccess } from "../../src/datastore/kubernetes/access.ts";
import { KubeApi, type KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { KubeStatusError } from "../../src/datastore/kubernetes/status-error.ts";
import { type ApiServer, kubeconfigText, startApiServer } from "./api-server.ts";
import { found, isAvailable, suite } from "./available.ts";
import { leaseServer } from "./shared-server.ts";

const CRDS = join(import.meta.dir, "../../manifests/crds");
/** Recordings of Calico, if they exist next to the checkout. */
export const RECORDINGS = join(import.meta.dir, "../../../shared/golden");
const V1 = "/apis/crd.projectcalico.org/v1";
const DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

export { isAvailable, suite };

export interface Cluster extends AsyncDisposable {
  readonly server: ApiServer;
  /** With administrator rights. */
  readonly api: KubeApi;
  readonly config: KubernetesConfig;
  /** Creates or replaces an object. */
  put<T extends KubeObject>(path: string, object: object): Promise<T>;
  /** Creates or replaces an object by its `apiVersion` and `kind`, including its status. */
  apply(object: KubeObject & { readonly status?: unknown }): Promise<void>;
  /** Writes many objects directly into the server's etcd, by their keys below /registry/. */
  plant(objects: ReadonlyMap<string, object>): Promise<void>;
  calicoctl(args: readonly string[], stdin?: string, env?: Environment): Promise<Answer>;
  delete(path: string): Promise<void>;
  /** Returns all of Calico's custom resources, without the fields that differ in each run. */
  customResources(): Promise<readonly { plural: string; name: string; value: never }[]>;
  /** Deletes all of Calico's custom resources. */
  clear(): Promise<void>;
  /** Creates a service account with these rules, for a driver or program. */
  account(name: string, rules: readonly object[]): Promise<Account>;
  /** Compacts the server's etcd and restarts the server, so that old revisions are no longer available. */
  compact(): Promise<void>;
}

export type Environment = Readonly<Record<string, string | undefined>>;
export interface Answer {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Account {
  readonly config: KubernetesConfig;
  readonly tokenFile: string;
  /** Revokes the present token. */
  revoke(): Promise<void>;
  /** Writes a new token to the file. */
  renew(): Promise<void>;
}

export interface ClusterOptions {
  readonly namespaces?: readonly string[];
  /** Start a separate server, for suites that change definitions or the server in ways that cannot be undone. */
  readonly isOwn?: boolean;
  /** Additional arguments of the API server, which is then a separate one; receives its folder. */
  readonly flags?: (folder: string) => readonly string[];
}

/** Uses the shared server until the cluster is disposed, or starts a separate one. */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  if ("missing" in found) throw new Error(found.missing);
  const { path } = found;
  const { flags } = options;
  const start = () => startApiServer(path, { audit: true, flags });
  const wantsOwn = options.isOwn === true || flags !== undefined;
  const lease = wantsOwn ? undefined : await leaseServer(start, prepare);
  const server = lease?.server ?? (await start());
  const end = lease?.release ?? (async () => await server[Symbol.asyncDispose]());
  let api: KubeApi | undefined;
  try {
    const plurals = lease?.knowledge ?? (await prepare(server));
    api = await openApi(server);
    for (const name of options.namespaces ?? [])
      await api.json({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name } } });
    return clusterOn({ server, api, plurals, end });
  } catch (error) {
    api?.close();
    await end();
    throw error;
  }
}

const openApi = async (server: ApiServer): Promise<KubeApi> =>
  new KubeApi(await resolveAccess(configOf(server.kubeconfig), {}), { qps: 10_000, burst: 10_000 });

async function prepare(server: ApiServer): Promise<readonly Plural[]> {
  const api = await openApi(server);
  try {
    return await installDefinitions(api);
  } finally {
    api.close();
  }
}

interface Parts {
  readonly server: ApiServer;
  readonly api: KubeApi;
  readonly plurals: readonly Plural[];
  readonly end: () => Promise<void>;
}

function clusterOn({ server, api, plurals, end }: Parts): Cluster {
  return {
    server,
    api,
    config: configOf(server.kubeconfig),
    put: (path, object) => put(api, path, object),
    apply: (object) => apply(api, object),
    plant: (objects) => plant(server.etcdUrl, objects),
    calicoctl: (args, stdin, env) => calicoctl(server.kubeconfig, args, stdin, env),
    delete: async (path) => {
      await ifThere(api.json({ method: "DELETE", path, query: { gracePeriodSeconds: "0" } }));
    },
    customResources: () => customResources(api, plurals),
    clear: () => clear(api, plurals),
    account: (name, rules) => makeAccount(server, api, name, rules),
    compact: async () => {
      await server.stop();
      const status = etcdctl(server.etcdUrl, "endpoint", "status", "--write-out=json");
      const [{ Status: answer }] = JSON.parse(status) as [{ Status: { header: { revision: number } } }];
      etcdctl(server.etcdUrl, "compact", String(answer.header.revision));
      await server.start();
    },
    async [Symbol.asyncDispose]() {
      api.close();
      await end();
    },
  };
}

export function configOf(kubeconfig: string): KubernetesConfig {
  return {
    type: "kubernetes",
    kubeconfig,
    insecureSkipTlsVerify: false,
    disableNodePoll: false,
    usePodCidr: false,
    clientQps: 10_000,
    clientBurst: 10_000,
  };
}

interface Plural {
  readonly plural: string;
  readonly namespaced: boolean;
}

async function installDefinitions(api: KubeApi): Promise<readonly Plural[]> {
  const definitions = readdirSync(CRDS).map(
    (file) =>
      load(readFileSync(join(CRDS, file), "utf8")) as {
        readonly spec: { readonly names: { readonly plural: string }; readonly scope: string };
      },
  );
  await Promise.all(definitions.map((body) => api.json({ method: "POST", path: DEFINITIONS, body })));
  const plurals = definitions.map(({ spec }) => ({ plural: spec.names.plural, namespaced: spec.scope !== "Cluster" }));
  const deadline = performance.now() + 30_000;
  for (const { plural } of plurals)
    for (;;) {
      try {
        await api.list(`${V1}/${plural}`);
        break;
      } catch (error) {
        if (performance.now() > deadline) throw error;
        await Bun.sleep(20);
      }
    }
  return plurals;
}

/** Creates the account in kube-system. Its tokens are bound to a Secret, whose deletion revokes them. */
async function makeAccount(server: ApiServer, api: KubeApi, name: string, rules: readonly object[]): Promise<Account> {
  const home = "/api/v1/namespaces/kube-system";
  const rbac = "/apis/rbac.authorization.k8s.io/v1";
  await put(api, `${home}/serviceaccounts`, { metadata: { name } });
  if (rules.length > 0) {
    await put(api, `${rbac}/clusterroles`, { metadata: { name }, rules });
    await put(api, `${rbac}/clusterrolebindings`, {
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
      subjects: [{ kind: "ServiceAccount", name, namespace: "kube-system" }],
    });
  }
  const tokenFile = join(server.folder, `${name}.token`);
  const kubeconfig = join(server.folder, `${name}.kubeconfig`);
  const renew = async () => {
    const { metadata } = await put<KubeObject>(api, `${home}/secrets`, { metadata: { name } });
    const { status } = await api.json<{ status: { token: string } }>({
      method: "POST",
      path: `${home}/serviceaccounts/${name}/token`,
      body: { spec: { boundObjectRef: { kind: "Secret", apiVersion: "v1", name, uid: metadata.uid } } },
    });
    writeFileSync(tokenFile, status.token, { mode: 0o600 });
  };
  await renew();
  const text = kubeconfigText(server.url, server.ca, "").replace(
    '"token":""',
    `"tokenFile":${JSON.stringify(tokenFile)}`,
  );
  writeFileSync(kubeconfig, text, { mode: 0o600 });
  return {
    config: configOf(kubeconfig),
    tokenFile,
    renew,
    revoke: async () => {
      await api.json({ method: "DELETE", path: `${home}/secrets/${name}` });
    },
  };
}

async function put<T extends KubeObject>(api: KubeApi, path: string, object: object): Promise<T> {
  const body = object as KubeObject;
  try {
    return await api.json<T>({ method: "POST", path, body });
  } catch (error) {
    if (!(error instanceof KubeStatusError && error.reason === "AlreadyExists")) throw error;
  }
  const item = `${path}/${body.metadata.name}`;
  for (let attempt = 1; ; attempt++) {
    const { metadata } = await api.get<KubeObject>(item);
    const merged = { ...body, metadata: { ...body.metadata, resourceVersion: metadata.resourceVersion } };
    try {
      return await api.json<T>({ method: "PUT", path: item, body: merged });
    } catch (error) {
      // Tests that run at the same time, and the programs that they start, write the same object.
      const isConflict = error instanceof KubeStatusError && error.reason === "Conflict";
      if (!isConflict || attempt === 5) throw error;
    }
  }
}

async function calicoctl(
  kubeconfig: string,
  args: readonly string[],
  stdin = "",
  env: Environment = {},
): Promise<Answer> {
  let [stdout, stderr] = ["", ""];
  const exitCode = await runCommandLine("calicoctl", args, {
    env: { DATASTORE_TYPE: "kubernetes", KUBECONFIG: kubeconfig, K8S_CLIENT_QPS: "10000", ...env },
    out: (text) => void (stdout += text),
    err: (text) => void (stderr += text),
    readStdin: () => Buffer.from(stdin),
    isTerminal: () => false,
  });
  return { exitCode, stdout, stderr };
}

const PLACES: Readonly<Record<string, string>> = {
  Namespace: "/api/v1/namespaces",
  Node: "/api/v1/nodes",
  Pod: "/api/v1/*/pods",
  Service: "/api/v1/*/services",
  ServiceAccount: "/api/v1/*/serviceaccounts",
  NetworkPolicy: "/apis/networking.k8s.io/v1/*/networkpolicies",
  EndpointSlice: "/apis/discovery.k8s.io/v1/*/endpointslices",
  ClusterNetworkPolicy: "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
};
/** Returns the path of the collection of an object. */
export function placeOf({ kind = "", metadata }: KubeObject): string {
  const place = PLACES[kind];
  if (place === undefined) throw new Error(`no known collection for objects of kind ${kind}`);
  return place.replace("*", `namespaces/${metadata.namespace ?? "default"}`);
}

async function apply(api: KubeApi, object: KubeObject & { readonly status?: unknown }): Promise<void> {
  const place = placeOf(object);
  const written = await put<KubeObject>(api, place, object);
  if (object.status === undefined) return;
  const body = { ...written, status: object.status };
  await api.json({ method: "PUT", path: `${place}/${object.metadata.name}/status`, body });
}

async function plant(etcdUrl: string, objects: ReadonlyMap<string, object>): Promise<void> {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const puts = [...objects].map(([key, value]) => ({
    requestPut: { key: base64(`/registry/${key}`), value: base64(JSON.stringify(value)) },
  }));
  for (let i = 0; i < puts.length; i += 100) {
    const body = JSON.stringify({ success: puts.slice(i, i + 100) });
    const answer = await fetch(`${etcdUrl}/v3/kv/txn`, { method: "POST", body });
    if (!answer.ok) throw new Error(await answer.text());
  }
}

async function customResources(api: KubeApi, plurals: readonly Plural[]) {
  const found: { plural: string; name: string; value: never }[] = [];
  const lists = await Promise.all(plurals.map(({ plural }) => api.list(`${V1}/${plural}`, { lossless: false })));
  for (const [i, { plural }] of plurals.entries())
    for (const object of lists[i]?.items ?? []) {
      const { name, namespace, labels, annotations, ownerReferences, finalizers } = object.metadata;
      const metadata = { name, namespace, labels, annotations, ownerReferences, finalizers };
      const place = namespace === undefined ? name : `${namespace}/${name}`;
      const { apiVersion = "crd.projectcalico.org/v1", ...rest } = object;
      found.push({ plural, name: place, value: { ...rest, apiVersion, metadata } as never });
    }
  return found;
}

async function clear(api: KubeApi, plurals: readonly Plural[]): Promise<void> {
  await Promise.all(
    plurals.map(async ({ plural, namespaced }) => {
      const { items } = await api.list(`${V1}/${plural}`);
      if (!namespaced && items.length > 0) await api.json({ method: "DELETE", path: `${V1}/${plural}` });
      const namespaces = new Set(namespaced ? items.map(({ metadata }) => metadata.namespace) : []);
      for (const namespace of namespaces)
        await api.json({ method: "DELETE", path: `${V1}/namespaces/${namespace}/${plural}` });
    }),
  );
}

function etcdctl(url: string, ...args: readonly string[]): string {
  const env = { ...process.env, ETCDCTL_API: "3" };
  return execFileSync("etcdctl", ["--endpoints", url, ...args], { env, encoding: "utf8" });
}

async function ifThere<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof KubeStatusError && error.code === 404) return undefined;
    throw error;
  }
}
