import { expect, test } from "bun:test";
import { Client, Informer, openSqliteInMemory } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { eventually, staysTrue } from "../../lib/testing/eventually.ts";
import { DatastoreCache } from "../datastore-cache.ts";
import { resource } from "../testing/collector-fixture.ts";
import { FakeKube } from "../testing/fake-kube.ts";
import { NodeDeletion } from "./deletion.ts";
import type { KubernetesNode } from "./kubernetes-name.ts";

async function bench() {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  const kube = new FakeKube();
  const stop = new AbortController();
  const cache = new DatastoreCache({ store, log: silentLogger, batchMs: 1 });
  const kubernetesNodes = new Informer<KubernetesNode>({
    api: kube.api,
    path: "/api/v1/nodes",
    keep: () => ({ labels: {} }),
  });
  const node = async (name: string, orchestrator?: string) => {
    const orchRefs = orchestrator === undefined ? [] : [{ orchestrator, nodeName: name }];
    await client.create(resource("Node", name, { orchRefs }));
    if (orchestrator === "k8s") kube.put(`/api/v1/nodes/${name}`);
  };
  const names = async () => (await client.list({ kind: "Node" })).items.map(({ metadata }) => metadata.name).sort();
  let running: Promise<unknown> = Promise.resolve();
  return {
    kube,
    client,
    node,
    names,
    start(fullPassMs?: number) {
      const deletion = new NodeDeletion({
        api: kube.api,
        client,
        cache,
        kubernetesNodes,
        log: silentLogger,
        fullPassMs,
      });
      running = Promise.all([deletion, cache, kubernetesNodes].map((part) => part.run(stop.signal)));
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      await store.close();
    },
  };
}

test("TC-K14 nodes deleted from Kubernetes are deleted, at startup and later; nodes of other orchestrators are kept", async () => {
  await using cluster = await bench();
  for (const name of ["early", "late", "stays"]) await cluster.node(name, "k8s");
  await cluster.node("plain");
  await cluster.node("stack", "openstack");
  cluster.kube.delete("/api/v1/nodes/early");
  cluster.start();
  await eventually(async () => !(await cluster.names()).includes("early"));
  cluster.kube.delete("/api/v1/nodes/late");
  await eventually(async () => !(await cluster.names()).includes("late"));
  expect(await cluster.names()).toEqual(["plain", "stack", "stays"]);
});

test("TC-K14 the Kubernetes Node is read from the API server before the node is deleted", async () => {
  await using cluster = await bench();
  await cluster.node("n1", "k8s");
  cluster.start();
  await Bun.sleep(20);
  const path = "/api/v1/nodes/n1";
  const node = cluster.kube.objects.get(path);
  cluster.kube.delete(path);
  if (node !== undefined) cluster.kube.objects.set(path, node); // created again at once; the watch has not reported it yet
  await eventually(() => cluster.kube.reads.includes(path));
  await staysTrue(async () => (await cluster.names()).join() === "n1", 20);
});

test("TC-K14 a deletion that failed after all retries is retried by the next full check", async () => {
  await using cluster = await bench();
  await cluster.node("n1", "k8s");
  let refusals = 0;
  const remove = cluster.client.delete.bind(cluster.client);
  cluster.client.delete = (async (...args: Parameters<typeof remove>) => {
    if (refusals++ < 6) throw new Error("no");
    return remove(...args);
  }) as typeof cluster.client.delete;
  cluster.kube.delete("/api/v1/nodes/n1");
  cluster.start(50);
  await eventually(async () => (await cluster.names()).length === 0);
  expect(refusals).toBeGreaterThan(6);
});
