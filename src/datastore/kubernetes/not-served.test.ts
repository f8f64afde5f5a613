// Tests syncers and informers with a server that stops answering like the API server that they have listed: a proxy
// without its backend, an unavailable API group, or a definition that was really removed.
import { describe, expect, test } from "bun:test";
import { eventually } from "../../lib/testing/eventually.ts";
import { keyPath, passThrough } from "../../model/index.ts";
import type { SyncerUpdate, SyncStatus } from "../syncer.ts";
import { WatcherSyncer } from "../watcher-syncer.ts";
import { KubeApi } from "./api-client.ts";
import { CRD_V1 } from "./custom-resources.ts";
import { Informer } from "./informer.ts";
import { KubernetesDatastore } from "./kubernetes-datastore.ts";

const GROUP = "crd.projectcalico.org";
const RESOURCE = "globalnetworkpolicies";

/** The server's answer; `undefined` = 404 with a plain body. */
type Answers = (path: string) => object | undefined;

const POD = { metadata: { name: "web", namespace: "ns1", resourceVersion: "8", uid: "p" } };
const POLICY = { metadata: { name: "default.deny-all", resourceVersion: "9", uid: "u" }, spec: { selector: "all()" } };
const resourceList = (...resources: string[]) => ({
  kind: "APIResourceList",
  groupVersion: `${GROUP}/v1`,
  resources: resources.map((name) => ({ name })),
});
const groupList = (...groups: string[]) => ({
  kind: "APIGroupList",
  groups: groups.map((name) => ({ name, versions: [{ version: "v1" }] })),
});
const HEALTHY: Record<string, object> = {
  "/apis": groupList("apps", GROUP),
  [`/apis/${GROUP}/v1`]: resourceList("tiers", RESOURCE),
  [`/apis/${GROUP}/v1/${RESOURCE}`]: { metadata: { resourceVersion: "10" }, items: [POLICY] },
  "/api/v1/pods": { metadata: { resourceVersion: "10" }, items: [POD] },
};
const isOfGroup = (path: string) => path.startsWith(`/apis/${GROUP}/v1`);
const isList = (path: string) => path.endsWith(RESOURCE);

class TestServer implements Disposable {
  #answers: Answers = (path) => HEALTHY[path];
  readonly #watches = new Set<ReadableStreamDefaultController>();
  readonly #server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    fetch: ({ url }) => {
      const { pathname, searchParams } = new URL(url);
      const answer = this.#answers(pathname);
      if (answer === undefined) return new Response("default backend - 404", { status: 404 });
      if (!searchParams.has("watch")) return Response.json(answer);
      return new Response(new ReadableStream({ start: (stream) => void this.#watches.add(stream) }));
    },
  });
  readonly api = new KubeApi(
    {
      server: new URL(`http://127.0.0.1:${this.#server.port}`),
      tls: { rejectUnauthorized: true },
      credentials: async () => ({}),
      clearCache: () => {},
    },
    { qps: 10_000, burst: 10_000 },
  );

  /** Changes the answers, and ends all watches so that a list follows. */
  become(answers: Answers): void {
    this.#answers = answers;
    for (const stream of this.#watches) {
      stream.enqueue(`${JSON.stringify({ type: "ERROR", object: { code: 410, reason: "Expired" } })}\n`);
      stream.close();
    }
    this.#watches.clear();
  }

  get watchCount(): number {
    return this.#watches.size;
  }

  [Symbol.dispose](): void {
    this.api.close();
    void this.#server.stop(true);
  }
}

/** A syncer of one kind, its state and its failures. */
class Follower implements AsyncDisposable {
  readonly paths = new Set<string>();
  readonly failures: string[] = [];
  status: SyncStatus | undefined;
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;

  constructor(api: KubeApi, kind: "GlobalNetworkPolicy" | "KubernetesService", goneAfterMs: number) {
    const store = new KubernetesDatastore(api, CRD_V1, { usePodCidr: false });
    const syncer = new WatcherSyncer(store, () => [{ query: { type: "resource", kind }, processor: passThrough }], {
      timings: { watchRetryMs: 5, listRetryMs: 5, maxRetryMs: 20, pollMs: 20, goneAfterMs },
      onFailure: (error) => this.failures.push((error as Error).message),
    });
    this.#running = syncer.run(this, this.#abort.signal);
  }
  onStatus(status: SyncStatus): void {
    this.status = status;
  }
  onUpdates(updates: readonly SyncerUpdate[]): void {
    for (const { key, value } of updates)
      if (value === undefined) this.paths.delete(keyPath(key));
      else this.paths.add(keyPath(key));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }
}

describe("a kind with entries is kept", () => {
  const cases: Record<string, Answers> = {
    "when every request is answered with 404": () => undefined,
    "when its group is answered with 404": (path) => (isOfGroup(path) ? undefined : HEALTHY[path]),
    "when discovery still contains it": (path) => (isList(path) ? undefined : HEALTHY[path]),
    "when discovery returns another document": (path) =>
      isList(path) ? undefined : { kind: "Page", groupVersion: `${GROUP}/v1`, resources: [], groups: [] },
  };
  for (const [name, answers] of Object.entries(cases))
    test(name, async () => {
      using server = new TestServer();
      await using follower = new Follower(server.api, "GlobalNetworkPolicy", 0);
      await eventually(() => follower.status === "in-sync");
      server.become(answers);
      await eventually(() => follower.failures.length >= 10 || follower.paths.size === 0);
      expect(follower.paths.size).toBe(1);
      expect(follower.status).toBe("in-sync");
      expect(follower.failures[0]).toContain("the server does not serve GlobalNetworkPolicy");
    });
});

describe("a kind with entries is gone", () => {
  const cases: Record<string, Answers> = {
    "when its group's resource list has lacked it for the required time": (path) =>
      path === `/apis/${GROUP}/v1` ? resourceList("tiers") : isList(path) ? undefined : HEALTHY[path],
    "when the list of groups has lacked its group for the required time": (path) =>
      path === "/apis" ? groupList("apps") : isOfGroup(path) ? undefined : HEALTHY[path],
  };
  for (const [name, answers] of Object.entries(cases))
    test(name, async () => {
      using server = new TestServer();
      await using follower = new Follower(server.api, "GlobalNetworkPolicy", 300);
      await eventually(() => follower.status === "in-sync");
      const startedMs = performance.now();
      server.become(answers);
      await eventually(() => follower.paths.size === 0);
      expect(performance.now() - startedMs).toBeGreaterThanOrEqual(300);
      expect(follower.failures.length).toBeGreaterThan(2);
    });
});

test("a syncer that starts behind a proxy without backend does not report that it is in sync", async () => {
  for (const kind of ["GlobalNetworkPolicy", "KubernetesService"] as const) {
    using server = new TestServer();
    server.become(() => undefined);
    await using follower = new Follower(server.api, kind, 0);
    await eventually(() => follower.failures.length >= 5 || follower.status === "in-sync");
    expect(follower.status).not.toBe("in-sync");
  }
});

test("a kind of the core group is never gone, whatever discovery contains", async () => {
  using server = new TestServer();
  server.become((path) => (path === "/apis" ? groupList("apps") : undefined));
  await using follower = new Follower(server.api, "KubernetesService", 0);
  await eventually(() => follower.failures.length >= 5 || follower.status === "in-sync");
  expect(follower.status).not.toBe("in-sync");
});

test("an informer keeps its objects while every request is answered with 404", async () => {
  using server = new TestServer();
  const abort = new AbortController();
  const informer = new Informer({ api: server.api, path: "/api/v1/pods", keep: ({ metadata }) => metadata.name });
  const running = informer.run(abort.signal);
  await informer.synced;
  server.become(() => undefined);
  const before = server.api.requests;
  await eventually(() => server.api.requests >= before + 4, 10_000);
  expect(informer.size).toBe(1);
  abort.abort();
  await running;
});

test("an informer deletes its objects only when a second list, 5 s later, is empty too", async () => {
  using server = new TestServer();
  const items = Array.from({ length: 20 }, (_, i) => ({ metadata: { name: `p${i}`, resourceVersion: "8" } }));
  let lists = 0;
  const pods = (listed: readonly object[]): Answers => {
    return () => {
      lists++;
      return { metadata: { resourceVersion: "10" }, items: listed };
    };
  };
  server.become(pods(items));
  const abort = new AbortController();
  const informer = new Informer({ api: server.api, path: "/api/v1/pods", keep: ({ metadata }) => metadata.name });
  const running = informer.run(abort.signal);
  await informer.synced;
  await eventually(() => server.watchCount === 1);
  lists = 0;
  const startedMs = performance.now();
  server.become(pods([]));
  await eventually(() => server.watchCount === 1); // the watch that runs until the second list
  expect(lists).toBeGreaterThan(0);
  expect(informer.size).toBe(20);
  await eventually(() => informer.size === 0, 10_000);
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(5000);
  abort.abort();
  await running;
}, 20_000);
