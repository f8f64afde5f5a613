// The CNI service's rehearsal on a real API server, as the node agent's account and as one that may only read.
import { afterAll, beforeAll, expect } from "bun:test";
import { onStage } from "../../src/cni/service.ts";
import { rehearse } from "../../src/cni/rehearsal.ts";
import { type KubernetesConfig, openDatastore, Recall } from "../../src/datastore/index.ts";
import { canRun } from "../functional/cni/cni-host.ts";
import { installAccounts } from "./accounts.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

const CALICO = "/apis/crd.projectcalico.org/v1";
let cluster: Cluster;
beforeAll(async () => {
  if (!isAvailable || !canRun) return;
  cluster = await startCluster();
  const put = (plural: string, kind: string, name: string, spec: object) =>
    cluster.put(`${CALICO}/${plural}`, { apiVersion: "crd.projectcalico.org/v1", kind, metadata: { name }, spec });
  await put("clusterinformations", "ClusterInformation", "default", { datastoreReady: true });
  await put("ippools", "IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

suite("a rehearsal asks the API server what every pod will ask, and writes nothing", async () => {
  if (!canRun) return;
  const accounts = await installAccounts(cluster);
  const resources = ["clusterinformations", "ippools", "ipreservations", "ipamconfigs", "ipamconfigurations"];
  const reader = await cluster.account("reader", [
    { apiGroups: ["crd.projectcalico.org"], resources, verbs: ["get", "list", "watch"] },
  ]);
  const agent: KubernetesConfig = { ...cluster.config, kubeconfig: accounts.kubeconfig("calico-node") };
  for (const config of [agent, reader.config]) {
    const before = JSON.stringify(await cluster.customResources());
    const store = await openDatastore(config);
    const recall = new Recall();
    const signal = new AbortController().signal;
    const [add, del] = await rehearse({ store, recall, answer: onStage, signal });
    expect(add).toContain("open network namespace");
    expect(del).toBe("0\n\n");
    await store.close();
    expect(JSON.stringify(await cluster.customResources())).toBe(before);
  }
}, 120_000);
