// Counts, in the audit log, the requests that the programs of a node and the controllers send to stay up to date. This
// API server ends every watch after two to four seconds; by default it is half an hour or more.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BgpService } from "../../src/bgp/index.ts";
import { NodeCache } from "../../src/cni/service/node-cache.ts";
import {
  createSyncer,
  Informer,
  type KubernetesConfig,
  type KubeObject,
  openDatastore,
  openKubeApi,
} from "../../src/datastore/index.ts";
import { createLogger, silentLogger } from "../../src/lib/log/log.ts";
import { delay } from "../../src/lib/retry.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { keyPath } from "../../src/model/index.ts";
import { acceptingBird as bird } from "../functional/bgp/bare-service.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, configOf, isAvailable, startCluster, suite } from "./cluster.ts";
import { CLUSTER_NETWORK_POLICY } from "./cluster-network-policy.ts";
import { FelixPipeline } from "./felix-pipeline.ts";

const WATCH_SECONDS = 2;
const CONFIG_MAPS = "/api/v1/namespaces/ns1/configmaps";

let cluster: Cluster;
let accounts: Accounts;
beforeAll(async () => {
  if (!isAvailable) return;
  const flags = () => [`--min-request-timeout=${WATCH_SECONDS}`];
  cluster = await startCluster({ namespaces: ["ns1"], flags });
  accounts = await installAccounts(cluster);
  await cluster.put("/api/v1/nodes", { metadata: { name: "n1" } });
  await cluster.put("/apis/crd.projectcalico.org/v1/clusterinformations", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "ClusterInformation",
    metadata: { name: "default" },
    spec: { datastoreReady: true },
  });
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

interface Request {
  readonly verb: string;
  readonly path: string;
}
/** The requests of an account, in order. A watch is logged when it begins and when it ends, and counted once. */
function requestsOf(account: string): readonly Request[] {
  const requests = readFileSync(cluster.server.auditLog, "utf8")
    .split("\n")
    .filter((line) => line.includes(`"username":"system:serviceaccount:kube-system:${account}"`))
    .map((line) => JSON.parse(line) as AuditEvent);
  const byId = new Map(
    requests.map(({ auditID, verb, requestURI }) => [auditID, { verb, path: requestURI.split("?")[0] ?? "" }]),
  );
  return [...byId.values()];
}
interface AuditEvent {
  readonly auditID: string;
  readonly verb: string;
  readonly requestURI: string;
}

suite("a quiet node sends no list request when its watches end and are resumed", async () => {
  const config: KubernetesConfig = configOf(accounts.kubeconfig("calico-node"));
  const store = await openDatastore(config);
  const api = await openKubeApi(config, {});
  const folder = mkdtempSync(join(tmpdir(), "quiet-node-"));
  const abort = new AbortController();
  try {
    await using felix = new FelixPipeline(store, "n1");
    await using cache = new NodeCache("n1", { store, api, log: silentLogger });
    const bgp = new BgpService({
      nodeName: "n1",
      syncer: createSyncer("bgp", store, { hostname: "n1" }),
      folder,
      birds: { 4: bird, 6: bird },
      endpointStatusFolder: join(folder, "none"),
      kubernetes: api,
      logger: silentLogger,
    });
    const running = bgp.run(abort.signal);
    await eventually(() => felix.isInSync && cache.isInSync);
    const watched = () => requestsOf("calico-node").filter(({ verb }) => verb === "watch");
    const paths = [
      "/api/v1/pods",
      "/api/v1/namespaces",
      "/api/v1/services",
      "/apis/discovery.k8s.io/v1/endpointslices",
    ];
    await eventually(() => paths.every((path) => watched().some((request) => request.path === path)));
    const before = requestsOf("calico-node").length;
    const resumed = () => requestsOf("calico-node").slice(before);
    // Each path is watched by two programs at least; every watch of them ends meanwhile.
    await eventually(
      () => paths.every((path) => resumed().filter((request) => request.path === path).length >= 6),
      60_000,
    );
    expect(resumed().filter(({ verb }) => verb !== "watch")).toEqual([]);
    abort.abort();
    await running;
  } finally {
    abort.abort();
    await store.close();
    api.close();
    rmSync(folder, { recursive: true });
  }
}, 120_000);

suite("an informer whose watch is rejected backs off, logs it once, and continues without a list", async () => {
  const rules = (verbs: readonly string[]) => [{ apiGroups: [""], resources: ["configmaps"], verbs }];
  const account = await cluster.account("reader", rules(["get", "list"]));
  const api = await openKubeApi(account.config, {});
  const lines: string[] = [];
  const log = createLogger({ level: "info", write: ({ level, message }) => void lines.push(`${level}: ${message}`) });
  const informer = new Informer({ api, path: CONFIG_MAPS, keep: ({ metadata }: KubeObject) => metadata.name, log });
  const abort = new AbortController();
  const running = informer.run(abort.signal);
  const count = (verb: string) => requestsOf("reader").filter((request) => request.verb === verb).length;
  try {
    await informer.synced;
    await delay(5000); // the interval in which requests are counted
    expect(count("watch")).toBeWithin(2, 8);
    expect(count("list")).toBe(1);
    expect(lines).toEqual(["warn: list or watch failed; retrying"]);
    await cluster.put(CONFIG_MAPS, { metadata: { name: "meanwhile" } });
    await cluster.account("reader", rules(["get", "list", "watch"]));
    await eventually(() => informer.has("ns1/meanwhile"));
    expect(count("list")).toBe(1);
    expect(lines).toEqual(["warn: list or watch failed; retrying", "info: list and watch succeed again"]);
  } finally {
    abort.abort();
    await running;
    api.close();
  }
}, 60_000);

suite("a ClusterNetworkPolicy definition that is installed later takes effect within seconds", async () => {
  const store = await openDatastore(configOf(accounts.kubeconfig("calico-node")));
  const abort = new AbortController();
  let isInSync = false;
  const paths: string[] = [];
  const running = createSyncer("felix", store).run(
    {
      onStatus: (status) => void (isInSync = status === "in-sync"),
      onUpdates: (updates) => void paths.push(...updates.map(({ key }) => keyPath(key))),
    },
    abort.signal,
  );
  try {
    await eventually(() => isInSync);
    await cluster.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CLUSTER_NETWORK_POLICY);
    const policies = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
    const policy = {
      apiVersion: "policy.networking.k8s.io/v1alpha2",
      kind: "ClusterNetworkPolicy",
      metadata: { name: "closed" },
      spec: {
        tier: "Admin",
        priority: 10,
        subject: { namespaces: {} },
        ingress: [{ name: "deny", action: "Deny", from: [{ namespaces: {} }] }],
      },
    };
    // The server serves the kind shortly after it accepted the definition.
    await eventually(() =>
      cluster.put(policies, policy).then(
        () => true,
        () => false,
      ),
    );
    await eventually(() => paths.some((path) => path.includes("closed")), 5000);
  } finally {
    abort.abort();
    await running;
    await store.close();
  }
}, 60_000);
