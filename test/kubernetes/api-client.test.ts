// Tests the client of the Kubernetes API with a real API server.
import { afterAll, beforeAll, expect } from "bun:test";
import { resolveAccess } from "../../src/datastore/kubernetes/access.ts";
import {
  KubeApi,
  type KubeApiOptions,
  type KubeObject,
  type KubeWatchEvent,
} from "../../src/datastore/kubernetes/api-client.ts";
import { KubeStatusError } from "../../src/datastore/kubernetes/status-error.ts";
import type { ApiServer } from "./api-server.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

let cluster: Cluster;
let server: ApiServer;
let api: KubeApi;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster();
  ({ server } = cluster);
  api = await openApi();
}, 600_000);

async function openApi(options: KubeApiOptions = {}): Promise<KubeApi> {
  const config = {
    type: "kubernetes",
    kubeconfig: server.kubeconfig,
    insecureSkipTlsVerify: false,
    disableNodePoll: false,
    usePodCidr: false,
  } as const;
  return new KubeApi(await resolveAccess(config, {}), { qps: 1000, burst: 1000, ...options });
}
afterAll(async () => {
  api?.close();
  await cluster?.[Symbol.asyncDispose]();
});

const configMap = (name: string, data: Record<string, string>): KubeObject & { data: Record<string, string> } => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name },
  data,
});
const maps = "/api/v1/namespaces/default/configmaps";

suite("create and patch succeed, and errors have the server's reason", async () => {
  const created = await api.json<KubeObject>({ method: "POST", path: maps, body: configMap("one", { a: "1" }) });
  expect(created.metadata.uid).toBeString();
  const again = await api.json({ method: "POST", path: maps, body: configMap("one", {}) }).catch((e: unknown) => e);
  expect(again).toBeInstanceOf(KubeStatusError);
  expect((again as KubeStatusError).reason).toBe("AlreadyExists");
  const patched = await api.json<{ data: object }>({
    method: "PATCH",
    path: `${maps}/one`,
    contentType: "application/merge-patch+json",
    body: { data: { b: "2" } },
  });
  expect(patched.data).toEqual({ a: "1", b: "2" });
  const stale = await api
    .json({ method: "PUT", path: `${maps}/one`, body: { ...configMap("one", {}), metadata: created.metadata } })
    .catch((e: unknown) => e);
  expect((stale as KubeStatusError).reason).toBe("Conflict");
  await api.json({ method: "DELETE", path: `${maps}/one` });
  expect(((await api.get(`${maps}/one`).catch((e: unknown) => e)) as KubeStatusError).code).toBe(404);
});

suite("a list of several pages is complete, and a watch after it misses no change", async () => {
  const names = Array.from({ length: 1100 }, (_, i) => `many-${i}`);
  const made = { namespace: "default", creationTimestamp: "2026-01-01T00:00:00Z" };
  await cluster.plant(
    new Map(
      names.map((name) => {
        const { metadata, ...rest } = configMap(name, {});
        return [
          `configmaps/default/${name}`,
          { ...rest, metadata: { ...metadata, ...made, uid: crypto.randomUUID() } },
        ];
      }),
    ),
  );
  const listed = await api.list(maps);
  expect(listed.items.filter((item) => item.metadata.name.startsWith("many-"))).toHaveLength(1100);

  await api.json({ method: "POST", path: maps, body: configMap("after", {}) });
  const controller = new AbortController();
  const seen: KubeWatchEvent[] = [];
  const watching = (async () => {
    for await (const events of api.watch(
      maps,
      { resourceVersion: listed.metadata.resourceVersion },
      controller.signal,
    )) {
      seen.push(...events);
      if (seen.length === 1) await api.json({ method: "DELETE", path: `${maps}/after` });
      if (seen.length >= 2) controller.abort();
    }
  })().catch(() => {});
  await watching;
  expect(seen.map(({ type }) => type)).toEqual(["ADDED", "DELETED"]);
});

suite("an unavailable server is reported within the timeout, and the same client works after its return", async () => {
  await server.stop();
  const failed = await api.get("/version").catch((e: unknown) => e);
  expect(String(failed)).toContain(server.url);
  await server.start();
  expect(await api.get<KubeObject & { gitVersion: string }>("/version")).toHaveProperty("gitVersion");
}, 60_000);

suite("a watch without events ends without an error, and can be resumed", async () => {
  const impatient = await openApi({ watchIdleMs: 200 });
  try {
    // The server never sends a bookmark of a kind that has not changed since it started.
    const quiet = "/apis/networking.k8s.io/v1/ingressclasses";
    const { metadata } = await impatient.list(quiet);
    const place = { resourceVersion: metadata.resourceVersion };
    const signal = AbortSignal.timeout(20_000);
    for await (const events of impatient.watch(quiet, place, signal)) expect(events).toEqual([]);
    const name = "after-the-silence";
    await api.json({ method: "POST", path: quiet, body: { metadata: { name }, spec: { controller: "a.b/c" } } });
    const seen: string[] = [];
    for await (const events of impatient.watch(quiet, place, signal)) {
      for (const event of events) if (event.type === "ADDED") seen.push(event.object.metadata.name);
      if (events.length > 0) break; // the first batch is empty: the watch is open
    }
    expect(seen).toEqual([name]);
  } finally {
    impatient.close();
  }
});

suite("beforeWrite is called again when the connection is open, and a rejected write is not sent", async () => {
  let asked = 0;
  const refusal = new Error("no longer");
  const gated = await openApi({
    beforeWrite: () => {
      if (++asked === 2) throw refusal; // allowed at first, rejected when the connection is open
    },
  });
  try {
    const post = (name: string) => gated.json({ method: "POST", path: maps, body: configMap(name, {}) });
    expect(await post("unsent").catch((e: unknown) => e)).toBe(refusal);
    expect(((await api.get(`${maps}/unsent`).catch((e: unknown) => e)) as KubeStatusError).code).toBe(404);
    await Promise.all(["sent-1", "sent-2", "sent-3"].map(post));
    await post("sent-4"); // on an idle connection
    expect(asked).toBe(2 + 2 * 4);
    expect((await gated.list(maps)).items.filter(({ metadata }) => metadata.name.startsWith("sent-"))).toHaveLength(4);
  } finally {
    gated.close();
  }
});
