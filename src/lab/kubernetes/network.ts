// Installs Calico on a lab's cluster the way an operator does: the image is there, the manifest is applied.
import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import type { LabOptions } from "../options.ts";
import type { KubernetesCluster } from "./cluster.ts";

const WAIT_MS = 180_000;

export function manifestPath(name: string): string {
  const folders = [join(dirname(realpathSync(process.execPath)), ".."), join(import.meta.dir, "../../..")];
  const path = folders.map((folder) => join(folder, "manifests", name)).find((candidate) => existsSync(candidate));
  if (path === undefined) throw new Error(`manifests/${name} is not beside the executable; make manifests`);
  return path;
}

export const networkManifest = ({ backend }: LabOptions): string =>
  manifestPath(backend === "vxlan" ? "calico-vxlan.yaml" : "calico.yaml");

export function productImage(): string {
  const folders = [dirname(realpathSync(process.execPath)), join(import.meta.dir, "../../../dist")];
  const path = folders.map((folder) => join(folder, "calico-image.tar")).find((candidate) => existsSync(candidate));
  if (path === undefined) throw new Error("the container image is not built; make image");
  return path;
}

/**
 * What an operator sets on the DaemonSet beyond the manifest: this kernel may have no IPIP, and the manifest's VXLAN
 * leaves packets between nodes of one network, as all are here, without a tunnel.
 */
export function nodeSettings({ backend, dataplane }: LabOptions): Record<string, string> {
  return {
    ...(backend === "bird" ? { CALICO_IPV4POOL_IPIP: "Never" } : { CALICO_IPV4POOL_VXLAN: "Always" }),
    FELIX_NFTABLESMODE: dataplane === "nft" ? "Enabled" : "Disabled",
  };
}

export async function installNetwork(cluster: KubernetesCluster): Promise<void> {
  const { options, plan } = cluster.lab;
  const settings = Object.entries(nodeSettings(options)).map(([name, value]) => `${name}=${value}`);
  cluster.kubectl(["apply", "--filename", networkManifest(options)]);
  cluster.kubectl(["set", "env", "--namespace=kube-system", "daemonset/calico-node", ...settings]);
  await cluster.until("all nodes are Ready", () => cluster.readyNodes().length === plan.nodes.length, WAIT_MS);
  settlePools(cluster);
  const rolledOut = ["rollout", "status", "--namespace=kube-system", `--timeout=${WAIT_MS / 1000}s`];
  for (const workload of ["daemonset/calico-node", "deployment/calico-kube-controllers"])
    cluster.kubectl([...rolledOut, workload]);
}

interface PoolObject {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly ipipMode?: string; readonly vxlanMode?: string };
}

/** Between the two commands a node may have made the first pool with the manifest's own settings. */
function settlePools(cluster: KubernetesCluster): void {
  const settings = nodeSettings(cluster.lab.options);
  const ipipMode = "Never";
  const vxlanMode = settings["CALICO_IPV4POOL_VXLAN"] ?? "Never";
  const { items } = cluster.get<{ items: readonly PoolObject[] }>(["ippools.crd.projectcalico.org"]);
  for (const { metadata, spec } of items)
    if ((spec.ipipMode ?? "Never") !== ipipMode || (spec.vxlanMode ?? "Never") !== vxlanMode) {
      const patch = JSON.stringify({ spec: { ipipMode, vxlanMode } });
      cluster.kubectl(["patch", "ippools.crd.projectcalico.org", metadata.name, "--type=merge", `--patch=${patch}`]);
    }
}
