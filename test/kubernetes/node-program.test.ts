// Runs `calico-node -startup` and `-complete-startup` as processes, with the API server as datastore and the manifest's
// account. Each run has its own mount namespace, so that the machine's /var/lib and /run are not changed.
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KubeObject } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, isAvailable, startCluster, suite as withServer } from "./cluster.ts";

const PROGRAM = join(import.meta.dir, "../../dist/calico-node");
const PRIVATE = 'mount -t tmpfs none /var/lib && mount -t tmpfs none /run && exec "$@"';
const CALICO = "/apis/crd.projectcalico.org/v1";
const NODE = "/api/v1/nodes/kube-n1";

const canRun = process.getuid?.() === 0;
const suite = canRun ? withServer : withServer.skip; // mount namespaces require root

let cluster: Cluster;
let accounts: Accounts;
const folder = mkdtempSync(join(tmpdir(), "kube-node-program-"));
beforeAll(async () => {
  if (!isAvailable || !canRun) return;
  cluster = await startCluster();
  accounts = await installAccounts(cluster, "calico.yaml");
  await cluster.put("/api/v1/nodes", { metadata: { name: "kube-n1" } });
}, 600_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

function spawnNode(flags: readonly string[], more: Readonly<Record<string, string>> = {}) {
  return Bun.spawn(["unshare", "--mount", "sh", "-c", PRIVATE, "sh", PROGRAM, ...flags], {
    env: {
      PATH: process.env["PATH"] ?? "",
      DATASTORE_TYPE: "kubernetes",
      WAIT_FOR_DATASTORE: "true",
      KUBECONFIG: accounts.kubeconfig("calico-node"),
      NODENAME: "kube-n1",
      CALICO_NODENAME_FILE: join(folder, "nodename"),
      CALICO_SHUTDOWN_TIMESTAMP_FILE: join(folder, "shutdownTS"),
      CALICO_NETWORKING_BACKEND: "vxlan",
      CLUSTER_TYPE: "k8s",
      IP: "192.0.2.5/24",
      CALICO_IPV4POOL_CIDR: "10.77.0.0/16",
      CALICO_IPV4POOL_VXLAN: "Always",
      CALICO_IPV6POOL_CIDR: "none",
      ...more,
    },
    stdout: "pipe",
    stderr: "pipe",
  });
}
async function run(...flags: readonly string[]): Promise<{ readonly code: number; readonly output: string }> {
  const child = spawnNode(flags);
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { code, output: stdout + stderr };
}

interface KubeNode extends KubeObject {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}
const node = (): Promise<KubeNode> => cluster.api.get<KubeNode>(NODE);
const networkUnavailable = async () =>
  (await node()).status?.conditions?.find(({ type }) => type === "NetworkUnavailable")?.status;
const revisions = async (): Promise<string[]> => {
  const plurals = ["ippools", "clusterinformations", "felixconfigurations", "tiers", "ipamconfigs"];
  const lists = await Promise.all(plurals.map((plural) => cluster.api.list(`${CALICO}/${plural}`)));
  const objects = [...lists.flatMap(({ items }) => items), await node()];
  return objects.map(({ metadata }) => `${metadata.name} ${metadata.resourceVersion}`);
};

suite("NB-045 NB-046 NB-048 -startup writes node, pool and settings to an empty cluster with the manifest's account, and a second run writes nothing", async () => {
  const { code, output } = await run("-startup");
  expect({ code, output }).toEqual({ code: 0, output });
  expect(readFileSync(join(folder, "nodename"), "utf8")).toBe("kube-n1");
  expect((await node()).metadata.annotations).toMatchObject({ "projectcalico.org/IPv4Address": "192.0.2.5/24" });
  const pools = (await cluster.api.list(`${CALICO}/ippools`)).items as (KubeObject & { readonly spec?: unknown })[];
  expect(pools.map(({ spec }) => spec)).toMatchObject([{ cidr: "10.77.0.0/16", vxlanMode: "Always" }]);
  const information = await cluster.api.get(`${CALICO}/clusterinformations/default`);
  expect(information).toMatchObject({ spec: { datastoreReady: true, clusterType: "k8s,kdd" } });
  expect(await networkUnavailable()).toBeUndefined();
  const before = await revisions();
  expect((await run("-startup")).code).toBe(0);
  expect(await revisions()).toEqual(before);
}, 60_000);

suite("NB-049 NB-051 -shutdown reports the network as unavailable, -startup -complete-startup as available, and both exit", async () => {
  expect((await run("-shutdown")).code).toBe(0);
  expect(await networkUnavailable()).toBe("True");
  const { code, output } = await run("-startup", "-complete-startup");
  expect({ code, output }).toEqual({ code: 0, output });
  expect(await networkUnavailable()).toBe("False");
}, 60_000);

suite("NB-050 -complete-startup waits for Felix, reports the network as available, and keeps running", async () => {
  expect((await run("-shutdown")).code).toBe(0);
  let isReady = false;
  let asked = 0;
  const felix = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => (asked++, new Response("", { status: isReady ? 200 : 503 })),
  });
  const child = spawnNode(["-complete-startup"], {
    FELIX_HEALTHENABLED: "true",
    FELIX_HEALTHHOST: "127.0.0.1",
    FELIX_HEALTHPORT: String(felix.port),
  });
  try {
    await eventually(() => asked >= 2);
    expect(await networkUnavailable()).toBe("True");
    isReady = true;
    await eventually(async () => (await networkUnavailable()) === "False");
    expect(child.exitCode).toBeNull();
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
  } finally {
    child.kill("SIGKILL");
    await felix.stop(true);
  }
}, 60_000);

suite("NB-021 -startup waits for an API server that does not answer yet", async () => {
  cluster.server.freeze();
  const child = spawnNode(["-startup", "-complete-startup"]);
  try {
    expect(await Promise.race([child.exited, Bun.sleep(1000).then(() => "waits")])).toBe("waits");
    cluster.server.thaw();
    expect(await child.exited).toBe(0);
  } finally {
    cluster.server.thaw();
    child.kill("SIGKILL");
  }
}, 60_000);
