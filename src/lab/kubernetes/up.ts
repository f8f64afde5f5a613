// Creates a Kubernetes cluster: hosts, control plane, nodes, then Calico's manifest and cluster DNS. Each step creates only what
// is missing.
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { delay } from "../../lib/retry.ts";
import { buildFabric, connectHost } from "../fabric.ts";
import type { Lab } from "../lab.ts";
import type { LabOptions } from "../options.ts";
import { rolePath } from "../programs.ts";
import type { Terminal } from "../terminal.ts";
import { requireTools } from "../tools.ts";
import { KubernetesCluster } from "./cluster.ts";
import { ADMIN, apiServerUrl, startApiServer, startControllerManagerAndScheduler } from "./control-plane.ts";
import { installDns } from "./dns.ts";
import { agnhostImage, coreDnsImage, pauseImage } from "./images.ts";
import { installNetwork, networkManifest, productImage } from "./network.ts";
import { configureNode, importImage, isRuntimeReady, startKubelet, startRuntime } from "./node-programs.ts";
import { CLUSTER_PROGRAMS, obtainPrograms } from "./programs.ts";

const WAIT_MS = 120_000;
/** Debian programs that nodes and the control plane use. */
const HOST_TOOLS = ["etcd", "runc", "openssl", "iptables-restore", "nft", "conntrack", "ipset"] as const;

export async function upKubernetes(lab: Lab, terminal: Terminal): Promise<void> {
  const cluster = await upWithoutNetwork(lab, terminal);
  await terminal.step("calico, by kubectl apply", () => installNetwork(cluster));
  await terminal.step("cluster DNS", () => installDns(cluster));
}

/** Creates a cluster without a network plugin; its nodes are not Ready. */
async function upWithoutNetwork(lab: Lab, terminal: Terminal): Promise<KubernetesCluster> {
  const { folder, plan, options } = lab;
  const cluster = new KubernetesCluster(lab);
  const product = checkPrerequisites(options);
  await obtainPrograms(CLUSTER_PROGRAMS, terminal);
  const images = await terminal.step("images", () => [pauseImage(), agnhostImage(), coreDnsImage(), product]);
  await terminal.step("control plane", () => {
    buildFabric(folder, plan);
    for (const node of plan.nodes) connectHost(folder, node);
    return startControlPlane(cluster);
  });
  await terminal.step(`${plan.nodes.length} nodes with containerd`, async () => {
    for (const place of cluster.places) {
      await place.host.start();
      configureNode(place, cluster.authority, options);
      copyFileSync(cluster.kubeconfig, join(place.host.disk, "etc", "admin.kubeconfig"));
      startRuntime(place.host);
    }
    for (const { host } of cluster.places) {
      await cluster.until(`containerd on ${host.name} responds`, () => isRuntimeReady(host), WAIT_MS);
      for (const image of images) {
        importImage(host, image);
        await delay(0); // lets the terminal print the elapsed time
      }
    }
  });
  await terminal.step(`${plan.nodes.length} kubelets`, async () => {
    for (const place of cluster.places) startKubelet(place);
    await cluster.until(
      "all nodes are registered",
      () => cluster.get<{ items: readonly object[] }>(["nodes"]).items.length === plan.nodes.length,
      WAIT_MS,
    );
  });
  return cluster;
}

/** Fails early if something is missing. Returns the path of the product image. */
export function checkPrerequisites(options: LabOptions): string {
  rolePath("calico-node");
  networkManifest(options);
  requireTools(HOST_TOOLS);
  return productImage();
}

/** Starts the missing programs of the control plane, and waits until they are ready. */
export async function startControlPlane(cluster: KubernetesCluster): Promise<void> {
  cluster.authority.kubeconfig(apiServerUrl(cluster.address), ADMIN);
  startApiServer(cluster);
  await cluster.until("the API server responds", () => cluster.kubectl(["get", "--raw", "/readyz"]) === "ok", WAIT_MS);
  startControllerManagerAndScheduler(cluster);
  await cluster.until(
    "the controller manager is ready",
    () => cluster.tryKubectl(["get", "serviceaccount", "default"]).code === 0,
    WAIT_MS,
  );
}
