// Tests the permissions in the manifests on a real API server. Each component's code runs with its account, and the
// server's audit log shows that no request was denied (the permissions are sufficient), and that every permission was used
// except those listed here with a reason (they are minimal). The most harmful requests are sent and must be denied.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requestToken } from "../../src/cni/kubernetes/token-refresh.ts";
import { NodeCache } from "../../src/cni/service/node-cache.ts";
import { upgradeFromHostLocal } from "../../src/cni/ipam/upgrade-from-host-local.ts";
import {
  Client,
  createSyncer,
  type KubeObject,
  type Datastore,
  openDatastore,
  openKubeApi,
  type SyncerName,
} from "../../src/datastore/index.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { VERSION_ANNOTATION } from "../../src/lib/process/build.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { eventually as untilTrue } from "../../src/lib/testing/eventually.ts";
import { setNetworkUnavailable } from "../../src/node/startup/kubernetes-facts.ts";
import { startUp } from "../../src/node/startup/startup.ts";
import { reportStatus } from "../../src/node/bgp/status-reporter.ts";
import { reconcileTunnelAddresses } from "../../src/node/tunnels/tunnel-addresses.ts";
import { resolveConfig } from "../../src/typha/config.ts";
import { TyphaDaemon } from "../../src/typha/daemon.ts";
import { canRun, CniHost, k8s } from "../functional/cni/cni-host.ts";
import { freePort } from "../support/free-port.ts";
import { type AccountName, type Accounts, installAccounts, rulesOf } from "./accounts.ts";
import { type Cluster, configOf, isAvailable, startCluster, suite } from "./cluster.ts";
import { ControllersRun } from "./controllers-run.ts";
import { forwardInto } from "../support/host-forwarder.ts";

async function eventually(
  holds: () => boolean | undefined | Promise<boolean | undefined>,
  what: string,
): Promise<void> {
  await untilTrue(async () => (await holds()) === true, 30_000).catch((error: unknown) => {
    throw new Error(what, { cause: error });
  });
}

const folder = mkdtempSync(join(tmpdir(), "kube-rbac-"));
let cluster: Cluster;
let accounts: Accounts;

beforeAll(async () => {
  if (!isAvailable) return;
  // Admission policies stay in effect shortly after they are deleted, so they cannot be used on the shared server.
  cluster = await startCluster({ isOwn: true, namespaces: ["ns1"] });
  await cluster.put("/api/v1/nodes", {
    metadata: { name: "n1" },
    spec: { podCIDR: "10.65.0.0/24" },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.5" }] },
  });
  accounts = await (await installAccounts(cluster, "calico-typha.yaml", { withAdmission: true })).on("n1");
  await cluster.put("/api/v1/namespaces/kube-system/configmaps", {
    metadata: { name: "kubeadm-config" },
    data: { ClusterConfiguration: "networking:\n  podSubnet: 10.65.0.0/16\n" },
  });
}, 600_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const kubeconfig = (name: AccountName) => accounts.kubeconfig(name);
const open = (name: AccountName): Promise<Datastore> => openDatastore(configOf(kubeconfig(name)));
const environment = (name: AccountName): Record<string, string> => ({
  DATASTORE_TYPE: "kubernetes",
  KUBECONFIG: kubeconfig(name),
  NODENAME: "n1",
  CALICO_NODENAME_FILE: join(folder, "nodename"),
  IP: "192.0.2.5/24",
  CLUSTER_TYPE: "k8s,bgp",
  CALICO_IPV4POOL_IPIP: "Always",
  POD_NAMESPACE: "kube-system",
});

interface AuditEvent {
  readonly verb: string;
  readonly requestURI: string;
  readonly user: { readonly username: string };
  readonly objectRef?: { readonly apiGroup?: string; readonly resource?: string; readonly subresource?: string };
  readonly responseStatus?: { readonly code?: number };
}
function requestsOf(account: AccountName): readonly AuditEvent[] {
  return readFileSync(cluster.server.auditLog, "utf8")
    .split("\n")
    .filter((line) => line.includes(`kube-system:${account}"`))
    .map((line) => JSON.parse(line) as AuditEvent)
    .filter(({ user }) => user.username === `system:serviceaccount:kube-system:${account}`);
}
const denied = (account: AccountName): string[] =>
  requestsOf(account)
    .filter(({ responseStatus }) => responseStatus?.code === 403)
    .map(({ verb, requestURI }) => `${verb} ${requestURI.split("?")[0]}`);

/** The allowed requests, as `verb group/resource`. */
function used(account: AccountName): Set<string> {
  return new Set(
    requestsOf(account).map(({ verb, objectRef: { apiGroup = "", resource = "", subresource } = {}, requestURI }) =>
      resource === ""
        ? `${verb} ${requestURI.split("?")[0]}`
        : `${verb} ${apiGroup}/${resource}${subresource === undefined ? "" : `/${subresource}`}`,
    ),
  );
}
function granted(account: AccountName): string[] {
  return rulesOf(accounts.manifest, account).flatMap(
    ({ apiGroups = [""], resources = [], nonResourceURLs = [], verbs }) =>
      verbs.flatMap((verb) => [
        ...apiGroups.flatMap((group) => resources.map((resource) => `${verb} ${group}/${resource}`)),
        ...nonResourceURLs.map((url) => `${verb} ${url}`),
      ]),
  );
}
/** Unused permissions, except those with a reason. */
function idle(account: AccountName, reasons: readonly RegExp[]): string[] {
  const seen = used(account);
  return [...new Set(granted(account))].filter(
    (right) => !seen.has(right) && !reasons.some((reason) => reason.test(right)),
  );
}

/** Runs a syncer until it is in sync and, if it is Felix's, watches the definitions of custom resources. */
async function follow(store: Datastore, name: SyncerName, account: AccountName): Promise<void> {
  const stop = new AbortController();
  const failures: unknown[] = [];
  let isInSync = false;
  const running = createSyncer(name, store, { hostname: "n1", onFailure: (error) => failures.push(error) }).run(
    { onStatus: (status) => void (isInSync = status === "in-sync"), onUpdates: () => {} },
    stop.signal,
  );
  await eventually(() => isInSync, `${name} in sync`);
  const watched = "watch apiextensions.k8s.io/customresourcedefinitions";
  if (name === "felix") await eventually(() => used(account).has(watched), watched);
  stop.abort();
  await running;
  expect({ name, failures }).toEqual({ name, failures: [] });
}

/** Attaches and detaches a pod on n1 with the real plugin and the account. */
async function attach(account: AccountName, pod: string): Promise<void> {
  await cluster.put("/api/v1/namespaces/ns1/pods", {
    metadata: { name: pod, annotations: { "cni.projectcalico.org/ipv4pools": '["default-ipv4-ippool"]' } },
    spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
  });
  await using host = await CniHost.create();
  using forwarder = forwardInto(host, cluster.server.url);
  const file = accounts.kubeconfig(account, forwarder.url);
  const conf = {
    cniVersion: "1.0.0",
    name: "k8s-pod-network",
    datastore_type: "kubernetes",
    kubernetes: { kubeconfig: file },
    policy: { type: "k8s" },
  };
  const namespace = host.pod(`container-${pod}`);
  const added = await host.add(namespace, { conf, ...k8s("ns1", pod) });
  expect({ pod, code: added.code, message: added.json["msg"] }).toEqual({ pod, code: 0, message: undefined });
  const { metadata } = await cluster.api.get<{ metadata: { name: string; annotations: Record<string, string> } }>(
    `/api/v1/namespaces/ns1/pods/${pod}`,
  );
  expect(metadata.annotations["cni.projectcalico.org/podIP"]).toStartWith("10.65.");
  const removed = await host.del(namespace, { conf, ...k8s("ns1", pod) });
  expect({ pod, code: removed.code, message: removed.json["msg"] }).toEqual({ pod, code: 0, message: undefined });
  // Attached again; then its container is lost, and the runtime's GC command removes everything.
  expect(await host.add(namespace, { conf, ...k8s("ns1", pod) })).toMatchObject({ code: 0 });
  const modern = { ...conf, cniVersion: "1.1.0", "cni.dev/valid-attachments": [] };
  const collected = await host.call("GC", undefined, { conf: modern });
  expect({ pod, code: collected.code, message: collected.json["msg"] }).toEqual({ pod, code: 0, message: undefined });
  expect(host.workloadLinks()).toEqual([]);
  const left = await cluster.api.get<{ metadata: { name: string; annotations: Record<string, string> } }>(
    `/api/v1/namespaces/ns1/pods/${pod}`,
  );
  expect(left.metadata.annotations["cni.projectcalico.org/podIP"] ?? "").toBe("");
}

/** KubeVirt and cluster-wide policies of Kubernetes are not installed here. */
const COMMON = [/kubevirt\.io/, /policy\.networking\.k8s\.io/];

suite("TC-I10 calico-node: the permissions are sufficient and minimal", async () => {
  const env = environment("calico-node");
  await startUp(env, silentLogger, join(folder, "root"));
  const store = await open("calico-node");
  const api = await openKubeApi(configOf(kubeconfig("calico-node")), {});
  try {
    const client = new Client(store);
    const ipam = new Ipam({ datastore: store, log: silentLogger });
    await reconcileTunnelAddresses({ client, ipam, node: "n1", log: silentLogger });
    for (const name of ["felix", "bgp", "tunnel-ip-allocation", "node-status"] as const)
      await follow(store, name, "calico-node");
    {
      await using reads = new NodeCache("n1", { store, api, log: silentLogger });
      await eventually(() => reads.isInSync, "the CNI service knows its node");
    }
    await setNetworkUnavailable(api, "n1", false);
    expect(await requestToken({ NODENAME: "n1" }, silentLogger, api)).toMatchObject({ token: expect.any(String) });
    // The next start does not change existing settings, even if values are missing.
    await cluster.calicoctl(["patch", "felixconfiguration", "default", "-p", '{"spec":{"reportingInterval":null}}']);
    const settings = async () => (await cluster.customResources()).filter(({ name }) => name === "default");
    const before = await settings();
    await startUp({ ...env, CLUSTER_TYPE: "k8s,bgp,more" }, silentLogger, join(folder, "root"));
    expect(await settings()).toEqual(before);
    await reportNodeStatus(store);
    await moveFromHostLocal(store, api);
    await ipam.releaseByHandle("ipip-tunnel-addr-n1");
    await ipam.releaseHostAffinities({ type: "host", name: "n1" }, { mustBeEmpty: false });
  } finally {
    api.close();
    await store.close();
  }
  if (canRun) await attach("calico-node", "by-node");
  // The migration from host-local continues if the datastore cannot be locked for the cluster.
  expect(denied("calico-node")).toEqual(["update /apis/crd.projectcalico.org/v1/clusterinformations/default"]);
  expect(
    idle("calico-node", [
      ...COMMON,
      // Read by the client before a write and after a conflict.
      /^get .*\/(pods|namespaces|serviceaccounts|services|endpointslices|networkpolicies|clusternetworkpolicies)$/,
      /^get crd\.projectcalico\.org\//,
      /^(list|watch) crd\.projectcalico\.org\/ipamhandles$/,
      // Needed if the status is not a subresource.
      /^update crd\.projectcalico\.org\/caliconodestatuses$/,
    ]),
  ).toEqual([]);
}, 120_000);

/** Creates a CalicoNodeStatus, and waits until the node has written its status. */
async function reportNodeStatus(store: Datastore): Promise<void> {
  const path = "/apis/crd.projectcalico.org/v1/caliconodestatuses";
  await cluster.put(path, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "CalicoNodeStatus",
    metadata: { name: "ask" },
    spec: { node: "n1", classes: ["Agent"], updatePeriodSeconds: 0 },
  });
  const stop = new AbortController();
  const running = reportStatus({ env: {}, store, node: "n1", log: silentLogger }, stop.signal);
  await eventually(async () => {
    const { status } = (await cluster.api.get(`${path}/ask`)) as { status?: { lastUpdated?: string } };
    return status?.lastUpdated !== undefined;
  }, "an answer");
  stop.abort();
  await running;
}

async function moveFromHostLocal(store: Datastore, api: Awaited<ReturnType<typeof openKubeApi>>): Promise<void> {
  const reservations = join(folder, "reservations");
  mkdirSync(reservations);
  writeFileSync(join(reservations, "10.65.0.9"), "container9\neth0");
  await upgradeFromHostLocal({
    node: "n1",
    store,
    api,
    log: silentLogger,
    reservations,
    plugins: folder,
    runningPluginsMs: 1,
  });
}

suite("TC-I11 calico-cni-plugin: has its own account, whose permissions are sufficient and minimal", async () => {
  if (!canRun) return;
  await attach("calico-cni-plugin", "by-plugin");
  expect(denied("calico-cni-plugin")).toEqual([]);
  expect(
    idle("calico-cni-plugin", [
      ...COMMON,
      // Used to take over a block of another node, and by garbage collection.
      /crd\.projectcalico\.org\/(ipamblocks|blockaffinities|ipamhandles|ipamconfigs|ipreservations|ippools)$/,
    ]),
  ).toEqual([]);
}, 60_000);

suite("TC-I10 calico-typha: the permissions are sufficient and minimal", async () => {
  const loaded = resolveConfig({ TYPHA_DATASTORETYPE: "kubernetes", TYPHA_SERVERHOST: "127.0.0.1" });
  const daemon = new TyphaDaemon({
    config: { ...loaded.config, ServerPort: await freePort() },
    env: { KUBECONFIG: kubeconfig("calico-typha") },
    log: silentLogger,
    version: "test",
  });
  await daemon.start();
  await eventually(() => [...daemon.caches.values()].every(({ isInSync }) => isInSync), "all in sync");
  const reasons = [...COMMON, /^get /, /^create crd\.projectcalico\.org\/(clusterinformations|tiers)$/];
  // In sync after its lists, it starts to watch.
  await eventually(() => idle("calico-typha", reasons).length === 0, "every right used").catch(() => undefined);
  await daemon.stop();
  expect(denied("calico-typha")).toEqual([]);
  expect(idle("calico-typha", reasons)).toEqual([]);
}, 60_000);

suite("TC-I10 calico-kube-controllers: the permissions are sufficient and minimal", async () => {
  await cluster.put("/apis/crd.projectcalico.org/v1/ippools", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPPool",
    metadata: { name: "services" },
    spec: { cidr: "10.99.0.0/24", allowedUses: ["LoadBalancer"] },
  });
  await cluster.put("/api/v1/namespaces/ns1/services", {
    metadata: { name: "web" },
    spec: { type: "LoadBalancer", ports: [{ port: 80 }] },
  });
  await cluster.put("/api/v1/nodes", { metadata: { name: "n2" } });
  await rolledOut();
  const policies = "/apis/crd.projectcalico.org/v1/globalnetworkpolicies";
  await cluster.put(policies, {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "GlobalNetworkPolicy",
    metadata: { name: "default.old" },
    spec: { tier: "default", selector: "all()", types: ["Ingress"] },
  });
  {
    await using run = new ControllersRun(
      {
        ...environment("calico-kube-controllers"),
        ENABLED_CONTROLLERS: "node,loadbalancer",
        AUTO_HOST_ENDPOINTS: "enabled",
        CALICO_CERTIFICATES: "typha",
      },
      { timings: { certificates: { checkMs: 100 } } },
    );
    const path = "/apis/crd.projectcalico.org/v1/hostendpoints";
    const names = async () => (await cluster.api.list(path)).items.map(({ metadata }) => metadata.name).sort();
    await eventually(async () => (await names()).includes("n2-auto-hep"), "a host endpoint");
    await eventually(async () => {
      const { status } = (await cluster.api.get("/api/v1/namespaces/ns1/services/web")) as unknown as {
        status: { loadBalancer: { ingress?: { ip: string }[] } };
      };
      return status.loadBalancer.ingress?.[0]?.ip.startsWith("10.99.0.");
    }, "an address of the service");
    await eventually(
      async () => (await cluster.api.list(policies)).items.every(({ metadata }) => metadata.name !== "default.old"),
      "the policy under its own name",
    );
    await cluster.delete("/api/v1/nodes/n2");
    await eventually(async () => !(await names()).includes("n2-auto-hep"), "no host endpoint");
    await cluster.delete("/api/v1/namespaces/ns1/services/web");
    await eventually(
      async () => (await cluster.api.list("/apis/crd.projectcalico.org/v1/ipamhandles")).items.length === 0,
      "the service's address back",
    );
    // Certificates are created, and repaired after a change.
    const home = "/api/v1/namespaces/kube-system";
    for (const [path, data] of [
      [`${home}/secrets/node-certs`, { "tls.crt": "", "tls.key": "" }],
      [`${home}/configmaps/typha-ca`, {}],
    ] as const) {
      const stored = await untilTrue(() => cluster.api.get<KubeObject>(path).catch(() => undefined));
      await cluster.api.json({ method: "PUT", path, body: { ...stored, data } });
      await eventually(async () => {
        const now = await cluster.api.get<KubeObject & { readonly data?: object }>(path);
        return now.data !== undefined && JSON.stringify(now.data) !== JSON.stringify(data);
      }, `${path} repaired`);
    }
    expect(run.failure).toBeUndefined();
    const information = await cluster.api.get<KubeObject>("/apis/crd.projectcalico.org/v1/clusterinformations/default");
    expect(JSON.stringify(information.metadata.annotations)).toContain(`"${VERSION_ANNOTATION}`);
  }
  expect(denied("calico-kube-controllers")).toEqual([]);
  expect(
    idle("calico-kube-controllers", [
      ...COMMON,
      // Used where a cached object is not sufficient: a suspected leak, or a namespace that a service's pool selects.
      /^get \/(nodes|pods|namespaces)$/,
      /^get crd\.projectcalico\.org\//,
      // Used to release addresses of deleted nodes and pods, blocks, and handles with several addresses.
      /crd\.projectcalico\.org\/(ipamblocks|blockaffinities|ipamhandles|ipamconfigs)$/,
      // Created by the first program that needs it.
      /^(create|update) crd\.projectcalico\.org\/(clusterinformations|kubecontrollersconfigurations|tiers)$/,
      // Used to repair changed objects, and to rename policies of other kinds.
      /^update crd\.projectcalico\.org\/hostendpoints$/,
      /^(create|delete) crd\.projectcalico\.org\/(networkpolicies|staged.*)$/,
    ]),
  ).toEqual([]);
}, 120_000);

/** Sets the status of calico-node's DaemonSet: it runs on every node. */
async function rolledOut(): Promise<void> {
  const path = "/apis/apps/v1/namespaces/kube-system/daemonsets";
  const set = accounts.manifest.find(({ kind }) => kind === "DaemonSet") ?? {};
  const made = await cluster.put<KubeObject>(path, set);
  const counts = { desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberReady: 1 };
  const status = { ...counts, observedGeneration: 1, numberMisscheduled: 0 };
  await cluster.api.json({ method: "PUT", path: `${path}/calico-node/status`, body: { ...made, status } });
}

/** Requests that must be denied for a stolen token. */
const FORBIDDEN: readonly (readonly [verb: string, group: string, resource: string, namespace?: string])[] = [
  ["get", "", "secrets", "kube-system"],
  ["list", "", "secrets"],
  ["get", "", "configmaps", "ns1"],
  ["create", "", "pods", "ns1"],
  ["delete", "", "pods", "ns1"],
  ["create", "", "pods/exec", "ns1"],
  ["update", "", "pods", "ns1"],
  ["delete", "", "nodes"],
  ["patch", "", "nodes"],
  ["update", "", "nodes"],
  ["create", "", "nodes/proxy"],
  ["delete", "", "namespaces"],
  ["impersonate", "", "users"],
  ["create", "rbac.authorization.k8s.io", "clusterrolebindings"],
  ["update", "rbac.authorization.k8s.io", "clusterroles"],
  ["escalate", "rbac.authorization.k8s.io", "clusterroles"],
  ["update", "apps", "daemonsets", "kube-system"],
  ["create", "apps", "deployments", "kube-system"],
  ["create", "networking.k8s.io", "networkpolicies", "ns1"],
  ["delete", "networking.k8s.io", "networkpolicies", "ns1"],
  ["update", "apiextensions.k8s.io", "customresourcedefinitions"],
  ["create", "", "serviceaccounts/token", "ns1"],
];
const SETTINGS = [
  "felixconfigurations",
  "bgpconfigurations",
  "bgppeers",
  "bgpfilters",
  "clusterinformations",
  "ipamconfigs",
  "ippools",
  "ipreservations",
  "globalnetworksets",
  "hostendpoints",
  "kubecontrollersconfigurations",
] as const;
const POLICY = ["networkpolicies", "globalnetworkpolicies", "tiers"] as const;

suite("TC-I10 TC-I11 harmful requests of all accounts are denied", async () => {
  const found: string[] = [];
  const check = async (account: AccountName, verb: string, group: string, resource: string, namespace?: string) => {
    const [name = "", subresource] = resource.split("/");
    const { status } = await cluster.api.json<{ status: { allowed: boolean } }>({
      method: "POST",
      path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      body: {
        spec: {
          user: `system:serviceaccount:kube-system:${account}`,
          groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
          resourceAttributes: { verb, group, resource: name, subresource, namespace },
        },
      },
    });
    if (status.allowed) found.push(`${account}: ${verb} ${group}/${resource} ${namespace ?? ""}`);
  };
  for (const account of accounts.names) {
    for (const forbidden of FORBIDDEN) await check(account, ...forbidden);
    // Programs that enforce policies must not be able to change them.
    if (account === "calico-kube-controllers") continue;
    for (const resource of POLICY)
      for (const verb of ["update", "patch", "delete", "deletecollection"])
        await check(account, verb, "crd.projectcalico.org", resource, "ns1");
  }
  // Nodes cannot change cluster-wide resources. own-node.test.ts tests that they create only defaults, and write only
  // objects of their own node.
  for (const account of ["calico-node", "calico-cni-plugin", "calico-typha"] as const)
    for (const verb of ["update", "patch", "delete", "deletecollection"])
      for (const resource of SETTINGS) await check(account, verb, "crd.projectcalico.org", resource);
  for (const verb of ["update", "delete", "create"])
    for (const resource of ["ippools", "felixconfigurations", "bgppeers", "hostendpoints", "globalnetworkpolicies"])
      await check("calico-cni-plugin", verb, "crd.projectcalico.org", resource);
  expect(found).toEqual([]);
}, 60_000);
