// Tests what a node reads from Kubernetes and reports to it, on a real API server, with the manifest's account.
import { afterAll, beforeAll, expect } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { Client, openDatastore } from "../../src/datastore/index.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { completeStartup, shutDown } from "../../src/node/startup/network-condition.ts";
import { readSettings } from "../../src/node/settings.ts";
import { startUp } from "../../src/node/startup/startup.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

let cluster: Cluster;
let accounts: Accounts;
const folder = mkdtempSync(join(tmpdir(), "kube-node-"));
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster();
  accounts = await installAccounts(cluster, "calico-etcd.yaml");
  await cluster.api.json({ method: "POST", path: "/api/v1/nodes", body: { metadata: { name: "kube-n1" } } });
}, 600_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

let runs = 0;
function environment(more: Record<string, string> = {}): Record<string, string> {
  const run = join(folder, String(runs++));
  return {
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: join(run, "calico.db"),
    CALICO_NODENAME_FILE: join(run, "nodename"),
    CALICO_SHUTDOWN_TIMESTAMP_FILE: join(run, "shutdownTS"),
    KUBECONFIG: accounts.kubeconfig("calico-node"),
    NODENAME: "n1",
    CALICO_K8S_NODE_REF: "kube-n1",
    IP: "192.0.2.5/24",
    ...more,
  };
}
async function started(env: Record<string, string>) {
  await startUp(env, silentLogger, join(folder, "root"));
  const store = await openDatastore({ type: "sqlite", path: env["CALICO_SQLITE_PATH"] ?? "", isFallback: false });
  const client = new Client(store);
  const [information, pools, node] = [
    await client.get({ kind: "ClusterInformation", name: "default" }),
    (await client.list({ kind: "IPPool" })).items,
    await client.get({ kind: "Node", name: "n1" }),
  ];
  await store.close();
  return { information, pools, node };
}
const configMap = (name: string, data: Record<string, string>) =>
  cluster.put("/api/v1/namespaces/kube-system/configmaps", {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name },
    data,
  });

/** An address of this machine, for the node's InternalIP. */
const own = Object.values(networkInterfaces())
  .flat()
  .find((address) => address?.family === "IPv4" && !address.internal)?.address;

suite("NB-023 a cluster of neither kubeadm nor Rancher has the configured cluster type", async () => {
  const { information } = await started(environment({ CLUSTER_TYPE: "k8s,bgp" }));
  expect(information.spec.clusterType).toBe("k8s,bgp");
});

suite("NB-023 NB-039 kubeadm and Rancher are recognized, and kubeadm's pod subnets become the pools", async () => {
  await configMap("kubeadm-config", { ClusterConfiguration: "networking:\n  podSubnet: 10.77.0.0/16,fd00:77::/56\n" });
  await configMap("full-cluster-state", { x: "y" });
  const { information, pools, node } = await started(environment({ CLUSTER_TYPE: "k8s" }));
  expect(information.spec.clusterType).toBe("k8s,kubeadm,rancher");
  expect(pools.map(({ spec }) => spec.cidr)).toEqual(["10.77.0.0/16", "fd00:77::/56"]);
  expect(node.spec.orchRefs).toEqual([{ nodeName: "kube-n1", orchestrator: "k8s" }]);
});

suite("NB-030 the Kubernetes node's InternalIP is the node's address", async () => {
  if (own === undefined) return;
  const status = {
    addresses: [
      { type: "Hostname", address: "kube-n1" },
      { type: "InternalIP", address: own },
    ],
  };
  await cluster.api.json({
    method: "PATCH",
    path: "/api/v1/nodes/kube-n1/status",
    body: { status },
    contentType: "application/strategic-merge-patch+json",
  });
  const { node } = await started(environment({ IP: "autodetect", IP_AUTODETECTION_METHOD: "kubernetes-internal-ip" }));
  expect(node.spec.bgp?.ipv4Address).toStartWith(`${own}/`);
});

suite("NB-023 the start fails if the Kubernetes node does not exist, and the error contains the setting", async () =>
  await expect(started(environment({ CALICO_K8S_NODE_REF: "nobody" }))).rejects.toThrow("CALICO_K8S_NODE_REF"));

async function condition() {
  type Status = { status?: { conditions?: { type: string; status: string; reason: string; message: string }[] } };
  const { status } = (await cluster.api.get("/api/v1/nodes/kube-n1")) as Status;
  return status?.conditions?.find(({ type }) => type === "NetworkUnavailable");
}

suite("NB-049 NB-050 NB-051 the node's condition NetworkUnavailable is set and cleared", async () => {
  const env = environment({ CALICO_NETWORKING_BACKEND: "vxlan" });
  const settings = readSettings(env);
  await shutDown(settings, "n1", silentLogger);
  expect(await condition()).toMatchObject({
    status: "True",
    reason: "CalicoIsDown",
    message: "Calico is shutting down on this node",
  });
  const file = env["CALICO_SHUTDOWN_TIMESTAMP_FILE"] ?? "";
  expect(existsSync(file)).toBe(true);
  await completeStartup(settings, "n1", silentLogger, new AbortController().signal);
  expect(await condition()).toMatchObject({
    status: "False",
    reason: "CalicoIsUp",
    message: "Calico is running on this node",
  });
  expect(existsSync(file)).toBe(false);
});

suite("NB-050 the network is reported as available only when Felix is ready", async () => {
  const env = environment({ CALICO_NETWORKING_BACKEND: "vxlan", FELIX_HEALTHENABLED: "true", FELIX_HEALTHPORT: "1" });
  await shutDown(readSettings(env), "n1", silentLogger);
  const controller = new AbortController();
  const completing = completeStartup(readSettings(env), "n1", silentLogger, controller.signal);
  await Bun.sleep(200);
  expect(await condition()).toMatchObject({ status: "True" });
  controller.abort();
  await completing;
  expect(await condition()).toMatchObject({ status: "True" });
});

suite("NB-051 nothing is reported to Kubernetes if Calico's networking is disabled", async () => {
  await completeStartup(
    readSettings(environment({ CALICO_NETWORKING_BACKEND: "vxlan" })),
    "n1",
    silentLogger,
    new AbortController().signal,
  );
  await shutDown(readSettings(environment({ CALICO_NETWORKING_BACKEND: "none" })), "n1", silentLogger);
  expect(await condition()).toMatchObject({ status: "False" });
});
