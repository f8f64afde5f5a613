// Installs Calico on a lab's cluster: applies the manifest with settings for the lab. An existing installation is not changed.
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { loadAll } from "js-yaml";
import type { LabOptions } from "../options.ts";
import type { KubernetesCluster } from "./cluster.ts";

const WAIT_MS = 180_000;

export function manifestPath(name: string): string {
  const folders = [join(dirname(realpathSync(process.execPath)), ".."), join(import.meta.dir, "../../..")];
  const path = folders.map((folder) => join(folder, "manifests", name)).find((candidate) => existsSync(candidate));
  if (path === undefined) throw new Error(`manifests/${name} not found next to the executable; run make manifests`);
  return path;
}

export const networkManifest = ({ backend, typha }: LabOptions): string =>
  manifestPath(backend === "vxlan" ? "calico-vxlan.yaml" : typha === true ? "calico-typha.yaml" : "calico.yaml");

export function productImage(): string {
  const folders = [dirname(realpathSync(process.execPath)), join(import.meta.dir, "../../../dist")];
  const path = folders.map((folder) => join(folder, "calico-image.tar")).find((candidate) => existsSync(candidate));
  if (path === undefined) throw new Error("the container image is not built; run make image");
  return path;
}

export interface ManifestObject {
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

export const manifestObjects = (file: string): readonly ManifestObject[] =>
  (loadAll(readFileSync(file, "utf8")) as (ManifestObject | null)[]).filter((object) => object !== null);

/** Objects as one text, for `kubectl apply --filename=-`. */
export const listOf = (items: readonly object[]): string => JSON.stringify({ apiVersion: "v1", kind: "List", items });

/**
 * Environment of calico-node that differs from the manifest. This kernel may have no IPIP. The manifest's VXLAN mode sends
 * packets between nodes of one network, as in the lab, without encapsulation.
 */
export function nodeSettings({ backend, dataplane }: LabOptions): Record<string, string> {
  return {
    ...(backend === "bird" ? { CALICO_IPV4POOL_IPIP: "Never" } : { CALICO_IPV4POOL_VXLAN: "Always" }),
    FELIX_NFTABLESMODE: dataplane === "nft" ? "Enabled" : "Disabled",
  };
}

/** In the order of the manifest: if the last one exists, all objects have been applied. */
const WORKLOADS = ["daemonset/calico-node", "deployment/calico-kube-controllers"] as const;

export async function installNetwork(cluster: KubernetesCluster): Promise<void> {
  const { options, plan } = cluster.lab;
  if (!areInstalled(cluster, WORKLOADS))
    cluster.kubectl(["apply", "--filename=-"], listOf(manifestObjects(networkManifest(options)).map(withSettings)));
  await cluster.until("all nodes are Ready", () => cluster.readyNodes().length === plan.nodes.length, WAIT_MS);
  for (const workload of [...WORKLOADS, ...(options.typha === true ? ["deployment/calico-typha"] : [])])
    await cluster.rolledOut(workload, WAIT_MS);

  function withSettings(object: ManifestObject): ManifestObject {
    return isCalicoNode(object) ? withEnvironment(object, nodeSettings(options)) : object;
  }
}

/** True if all these workloads of kube-system exist. */
export function areInstalled(cluster: KubernetesCluster, workloads: readonly string[]): boolean {
  const found = cluster.kubectl([
    "get",
    "--namespace=kube-system",
    "--ignore-not-found",
    "--output=name",
    ...workloads,
  ]);
  return (
    found
      .trim()
      .split("\n")
      .filter((line) => line !== "").length === workloads.length
  );
}

interface Variable {
  readonly name: string;
}
interface DaemonSet extends ManifestObject {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly { readonly env: readonly Variable[] }[] } };
  };
}

const isCalicoNode = (object: ManifestObject): object is DaemonSet =>
  object.kind === "DaemonSet" && object.metadata.name === "calico-node";

function withEnvironment(object: DaemonSet, settings: Readonly<Record<string, string>>): DaemonSet {
  const { template } = object.spec;
  const added = Object.entries(settings).map(([name, value]) => ({ name, value }));
  const containers = template.spec.containers.map((container) => ({
    ...container,
    env: [...container.env.filter(({ name }) => settings[name] === undefined), ...added],
  }));
  const spec = { ...template.spec, containers };
  return { ...object, spec: { ...object.spec, template: { ...template, spec } } };
}
