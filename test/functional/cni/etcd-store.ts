// Runs in a test host, where its etcd listens: `seed` stores a cluster with one node, `left` counts the objects of pods.
import { chooseDatastore, configFromEnvironment, openDatastore } from "../../../src/datastore/index.ts";
import { API_VERSION, type KindName, type Resource } from "../../../src/model/index.ts";

const env = process.env;
const store = await openDatastore(chooseDatastore(configFromEnvironment(env), { env }), { timeoutMs: 15_000 });
const put = (kind: KindName, name: string, spec: object) =>
  store.apply({
    key: { type: "resource", kind, name },
    value: { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource,
  });
if (process.argv[2] === "seed") {
  await put("ClusterInformation", "default", { datastoreReady: true });
  await put("Node", "n1", {});
  await put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
} else {
  const { items: blocks } = await store.list({ type: "block" });
  const { items: handles } = await store.list({ type: "ipamHandle" });
  const { items: endpoints } = await store.list({ type: "resource", kind: "WorkloadEndpoint" });
  const allocations = blocks.flatMap(({ value }) => value.allocations.filter((index) => index !== null)).length;
  console.log(JSON.stringify({ allocations, handles: handles.length, endpoints: endpoints.length }));
}
await store.close();
process.exit(0);
