import { expect, test } from "bun:test";
import { Client, Informer, openSqliteInMemory } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { Feed } from "../feed.ts";
import { resource } from "../testing/collector-bench.ts";
import { FakeKube } from "../testing/fake-kube.ts";
import { NodeDeletion } from "./deletion.ts";
import type { KubernetesNode } from "./kubernetes-name.ts";

async function bench() {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  const kube = new FakeKube();
  const stop = new AbortController();
  const feed = new Feed({ store, log: silentLogger, batchMs: 1 });
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
        feed,
        kubernetesNodes,
        log: silentLogger,
        ...(fullPassMs === undefined ? {} : { fullPassMs }),
      });
      running = Promise.all([deletion, feed, kubernetesNodes].map((part) => part.run(stop.signal)));
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      await store.close();
    },
  };
}

test("TC-K14 nodes that left Kubernetes go, at the start and later; nodes of others never", async () => {
  await using cluster = await bench();
  for (const name of ["early", "late", "stays"]) await cluster.node(name, "k8s");
  await cluster.node("plain");
  await cluster.node("stack", "openstack");
  cluster.kube.drop("/api/v1/nodes/early");
  cluster.start();
  await eventually(async () => !(await cluster.names()).includes("early"));
  cluster.kube.drop("/api/v1/nodes/late");
  await eventually(async () => !(await cluster.names()).includes("late"));
  expect(await cluster.names()).toEqual(["plain", "stack", "stays"]);
});

test("TC-K14 the API server is asked before a node is removed", async () => {
  await using cluster = await bench();
  await cluster.node("n1", "k8s");
  cluster.start();
  await Bun.sleep(20);
  const path = "/api/v1/nodes/n1";
  const node = cluster.kube.objects.get(path);
  cluster.kube.drop(path);
  if (node !== undefined) cluster.kube.objects.set(path, node); // back at once, and the watch has not told of it
  await eventually(() => cluster.kube.reads.includes(path));
  await Bun.sleep(20);
  expect(await cluster.names()).toEqual(["n1"]);
});

test("TC-K14 a removal that failed for good is tried again by the next full pass", async () => {
  await using cluster = await bench();
  await cluster.node("n1", "k8s");
  let refusals = 0;
  const remove = cluster.client.delete.bind(cluster.client);
  cluster.client.delete = (async (...args: Parameters<typeof remove>) => {
    if (refusals++ < 6) throw new Error("no");
    return remove(...args);
  }) as typeof cluster.client.delete;
  cluster.kube.drop("/api/v1/nodes/n1");
  cluster.start(50);
  await eventually(async () => (await cluster.names()).length === 0);
  expect(refusals).toBeGreaterThan(6);
});
