// Tests a cluster with custom resources of the native group projectcalico.org/v3: it is found by discovery, and metadata is
// stored without an annotation.
import { afterAll, beforeAll, expect } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { load } from "js-yaml";
import {
  Client,
  type Datastore,
  type KubeApi,
  openDatastore,
  openKubeApi,
  Unavailable,
} from "../../src/datastore/index.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { createLogger, silentLogger } from "../../src/lib/log/log.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { freePort } from "../support/free-port.ts";
import { type ApiServer, findApiServer, kubeconfigText, startApiServer } from "./api-server.ts";
import { configOf, isAvailable, suite } from "./cluster.ts";

const CRDS = join(import.meta.dir, "../../manifests/crds");
interface Definition {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly names: { readonly plural: string };
    readonly versions: readonly { readonly name: string }[];
  };
}

let server: ApiServer;
let api: KubeApi;
let store: Datastore;
beforeAll(async () => {
  if (!isAvailable) return;
  const found = await findApiServer();
  if ("missing" in found) return;
  server = await startApiServer(found.path);
  api = await openKubeApi(configOf(server.kubeconfig), {});
  for (const file of readdirSync(CRDS)) {
    // The only field whose type differs: a boolean here, text in the older group.
    const text = readFileSync(join(CRDS, file), "utf8").replace(/(deleted:\n +type: )string/, "$1boolean");
    const definition = load(text) as Definition;
    const { plural } = definition.spec.names;
    const body = {
      ...definition,
      metadata: { name: `${plural}.projectcalico.org` },
      spec: {
        ...definition.spec,
        group: "projectcalico.org",
        versions: definition.spec.versions.map((version) => ({ ...version, name: "v3" })),
      },
    };
    await api.json({ method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body });
  }
  await eventually(
    () =>
      api.list("/apis/projectcalico.org/v3/tiers").then(
        () => true,
        () => false,
      ),
    30_000,
  );
  await Bun.sleep(500); // the others are served shortly after
  store = await openDatastore(configOf(server.kubeconfig));
}, 600_000);
afterAll(async () => {
  await store?.close();
  api?.close();
  await server?.[Symbol.asyncDispose]();
});

suite("DM-096 the native group is used if only that is served, with plain metadata", async () => {
  const client = new Client(store);
  await client.create({
    apiVersion: "projectcalico.org/v3",
    kind: "IPPool",
    metadata: { name: "pods", labels: { zone: "a" }, annotations: { note: "mine" } },
    spec: { cidr: "10.65.0.0/16", blockSize: 26 },
  } as never);
  const raw = (await api.get("/apis/projectcalico.org/v3/ippools/pods")) as {
    apiVersion?: string;
    metadata: { labels?: object; annotations?: object };
  };
  expect(raw.apiVersion).toBe("projectcalico.org/v3");
  expect(raw.metadata.labels).toEqual({ zone: "a" });
  expect(raw.metadata.annotations).toEqual({ note: "mine" });
  expect((await client.get({ kind: "IPPool", name: "pods" })).metadata).toMatchObject({
    name: "pods",
    labels: { zone: "a" },
  });
  await client.ensureInitialized({ clusterType: "k8s" });
  expect((await client.list({ kind: "Tier" })).items.map(({ metadata }) => metadata.name).sort()).toEqual([
    "default",
    "kube-admin",
    "kube-baseline",
  ]);
  // IPAM uses it too.
  await api.json({ method: "POST", path: "/api/v1/nodes", body: { metadata: { name: "n1" } } });
  const ipam = new Ipam({ datastore: store, log: silentLogger });
  await ipam.assignAddress({ address: "10.65.0.9" as never, host: "n1", handleId: "h", attributes: {} });
  expect((await api.list("/apis/projectcalico.org/v3/ipamblocks")).items).toHaveLength(1);
  expect((await api.list("/apis/projectcalico.org/v3/ipamhandles")).items).toHaveLength(1);
}, 60_000);

suite("the group is chosen when the API server answers, not guessed after a failed request", async () => {
  const port = await freePort();
  const url = `https://127.0.0.1:${port}`;
  const kubeconfig = join(server.folder, "later.kubeconfig");
  writeFileSync(kubeconfig, kubeconfigText(url, server.ca, server.adminToken), { mode: 0o600 });
  const failed = await openDatastore(configOf(kubeconfig)).catch((error: unknown) => error);
  expect(failed).toBeInstanceOf(Unavailable);

  const lines: string[] = [];
  const write = ({ message, fields }: { message: string; fields: object }) =>
    void lines.push(`${message} ${JSON.stringify(fields)}`);
  const opening = openDatastore(configOf(kubeconfig), {
    log: createLogger({ level: "info", write }),
    retryUntil: AbortSignal.timeout(30_000),
  });
  await eventually(() => lines.length > 0);
  const target = Number(new URL(server.url).port);
  const relay = createServer((socket) => {
    const outgoing = connect(target, "127.0.0.1");
    for (const end of [socket, outgoing]) end.on("error", () => {});
    socket.pipe(outgoing).pipe(socket);
  });
  await new Promise<void>((resolve) => relay.listen(port, "127.0.0.1", resolve));
  const opened = await opening;
  expect(opened).toHaveProperty("apiGroup", "projectcalico.org/v3");
  expect(lines.at(-1)).toBe(`chose the API group of Calico's resources {"group":"projectcalico.org/v3"}`);
  expect(lines).toHaveLength(2);
  await opened.close();
  relay.close();
}, 60_000);
