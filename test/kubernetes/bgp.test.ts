// Tests the BGP service with a real API server: passwords from Secrets, addresses of Services.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BgpService } from "../../src/bgp/index.ts";
import { createSyncer, type KubeApi, openKubeApi, openSqliteInMemory } from "../../src/datastore/index.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { pollUntil } from "../../src/lib/testing/eventually.ts";
import type { KindName } from "../../src/model/index.ts";
import { acceptingBird as bird, put as putInto } from "../functional/bgp/bare-service.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

let cluster: Cluster;
let api: KubeApi;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster();
  const base = { insecureSkipTlsVerify: false, disableNodePoll: false, usePodCidr: false } as const;
  api = await openKubeApi(
    { type: "kubernetes", kubeconfig: cluster.server.kubeconfig, ...base, clientQps: 1000, clientBurst: 1000 },
    {},
  );
}, 600_000);
afterAll(async () => {
  api?.close();
  await cluster?.[Symbol.asyncDispose]();
});

suite("NB-090 NB-133 changes of secrets and services are applied", async () => {
  const folder = mkdtempSync(join(tmpdir(), "calico-bgp-kube-"));
  const datastore = await openSqliteInMemory();
  const put = (kind: KindName, name: string, spec: object) => putInto(datastore, kind, name, spec);
  await put("Node", "n1", { bgp: { ipv4Address: "10.0.0.1/24" } });
  await put("BGPConfiguration", "default", {
    nodeToNodeMeshEnabled: false,
    serviceClusterIPs: [{ cidr: "10.96.0.0/16" }],
  });
  await put("BGPPeer", "tor", {
    peerIP: "10.9.0.1",
    asNumber: 65100,
    password: { secretKeyRef: { name: "bgp", key: "tor" } },
  });
  const secrets = "/api/v1/namespaces/kube-system/secrets";
  const secret = (password: string) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "bgp" },
    stringData: { tor: password },
  });

  const abort = new AbortController();
  const service = new BgpService({
    nodeName: "n1",
    syncer: createSyncer("bgp", datastore, { hostname: "n1" }),
    folder,
    birds: { 4: bird, 6: bird },
    endpointStatusFolder: join(folder, "none"),
    kubernetes: api,
    logger: silentLogger,
  });
  const running = service.run(abort.signal);
  const until = (what: (text: string) => boolean) =>
    pollUntil(
      () =>
        Bun.file(join(folder, "bird.cfg"))
          .text()
          .catch(() => ""),
      what,
    );
  await until((text) => text.includes("neighbor 10.9.0.1") && !text.includes("password"));
  await api.json({ method: "POST", path: secrets, body: secret("first") });
  await until((text) => text.includes('password "first";'));
  await api.json({ method: "PUT", path: `${secrets}/bgp`, body: secret("second") });
  await until((text) => text.includes('password "second";'));
  await api.json({ method: "PUT", path: `${secrets}/bgp`, body: secret('with"quote') });
  await until((text) => !text.includes("password")); // BIRD could not parse it: rather no session than an invalid file
  await api.json({ method: "DELETE", path: `${secrets}/bgp` });

  const clusterIp = "10.96.0.77";
  await api.json({
    method: "POST",
    path: "/api/v1/namespaces/default/services",
    body: {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "web" },
      spec: { type: "NodePort", clusterIP: clusterIp, externalTrafficPolicy: "Local", ports: [{ port: 80 }] },
    },
  });
  const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
  await api.json({
    method: "POST",
    path: slices,
    body: {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
      addressType: "IPv4",
      endpoints: [{ addresses: ["192.168.1.1"], nodeName: "n1", conditions: { ready: true } }],
    },
  });
  await until((text) => text.includes(`route ${clusterIp}/32 blackhole;`));
  await api.json({ method: "DELETE", path: `${slices}/web-1` });
  await until((text) => !text.includes(clusterIp));
  expect(readFileSync(join(folder, "bird.cfg"), "utf8")).toContain("route 10.96.0.0/16 blackhole;");
  abort.abort();
  await running;
  await datastore.close();
  rmSync(folder, { recursive: true, force: true });
}, 60_000);
