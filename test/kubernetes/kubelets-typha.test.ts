// Tests a new Kubernetes cluster with real kubelets and the manifest calico-typha.yaml, as `calico lab up --kubernetes
// --typha` creates it. Nothing but the manifest is applied: the pods of Typha and calico-node wait for certificates that
// kube-controllers creates. The programs of the cluster and the image's Debian layer must be in the cache: `make e2e` builds
// them.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { uninstall } from "../../scripts/e2e/uninstall.ts";
import { isDebianRootCached } from "../../scripts/image/debian-root.ts";
import { makeImage } from "../../scripts/image.ts";
import { down } from "../../src/lab/down.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { CLUSTER_PROGRAMS, programPath } from "../../src/lab/kubernetes/programs.ts";
import { type LabOptions, resolveLabOptions } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { up } from "../../src/lab/up.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";

const canRun =
  process.getuid?.() === 0 &&
  isDebianRootCached() &&
  existsSync(join(import.meta.dir, "../../dist/calico-node")) &&
  CLUSTER_PROGRAMS.every((name) => existsSync(programPath(name)));
if (!canRun) console.error("KUBELET TESTS SKIPPED: they need root, and the programs and image that `make e2e` builds");
const suite = canRun ? test : test.skip; // a cluster's programs, or the image, are not built here

const quiet = openTerminal({ quiet: true });
const options: LabOptions = resolveLabOptions({ name: "testtypha", kubernetes: true, typha: true, nodes: 2 });
let cluster: KubernetesCluster;
beforeAll(async () => {
  if (!canRun) return;
  await makeImage();
  cluster = new KubernetesCluster(await up(options, quiet));
}, 600_000);
afterAll(async () => {
  if (canRun) await down(options.name, quiet);
}, 60_000);

interface PodList {
  readonly items: readonly {
    readonly metadata: { readonly name: string };
    readonly status: {
      readonly podIP?: string;
      readonly containerStatuses?: readonly { readonly restartCount: number }[];
    };
  }[];
}
const podsOf = (app: string) =>
  cluster.get<PodList>(["pods", "--namespace=kube-system", `--selector=k8s-app=${app}`]).items;
const logOf = (pod: string) => cluster.kubectl(["logs", "--namespace=kube-system", pod, "--tail=-1"]);

suite("on a new cluster every node connects to Typha with TLS, and nothing had to restart", async () => {
  const typhas = podsOf("calico-typha");
  const nodes = podsOf("calico-node");
  expect([typhas.length, nodes.length]).toEqual([1, 2]);
  for (const { metadata } of nodes)
    await eventually(() => logOf(metadata.name).includes("connected to Typha"), 60_000, `${metadata.name} connected`);
  for (const { metadata, status } of [...typhas, ...nodes, ...podsOf("calico-kube-controllers")])
    expect([metadata.name, status.containerStatuses?.map(({ restartCount }) => restartCount)]).toEqual([
      metadata.name,
      [0],
    ]);
  // Without a certificate, Typha ends the handshake: TLS 1.3 reports that with the first read.
  const [host] = cluster.places.map((place) => place.host);
  const address = `${typhas[0]?.status.podIP}:5473`;
  const stranger = host?.run(["openssl", "s_client", "-connect", address, "-ign_eof"]);
  expect(`${stranger?.stdout}${stranger?.stderr}`).toContain("alert certificate required");
}, 120_000);

suite("a renewed certificate reaches the running Typha through the kubelet", async () => {
  const [typha] = podsOf("calico-typha");
  const pod = typha?.metadata.name ?? "";
  // Damaged, and repaired by kube-controllers.
  const before = cluster.get<{ data: object }>(["secret/typha-certs", "--namespace=kube-system"]).data;
  const patch = JSON.stringify({ data: { "tls.crt": "", "tls.key": "" } });
  cluster.kubectl(["patch", "secret/typha-certs", "--namespace=kube-system", `--patch=${patch}`]);
  await eventually(() => {
    const { data } = cluster.get<{ data: Record<string, string> }>(["secret/typha-certs", "--namespace=kube-system"]);
    return data["tls.crt"] !== "" && JSON.stringify(data) !== JSON.stringify(before);
  }, 60_000);
  await eventually(
    () => logOf(pod).includes("loaded the renewed certificate"),
    180_000,
    "Typha reads the renewed certificate",
  );
  expect(podsOf("calico-typha")[0]?.status.containerStatuses?.[0]?.restartCount).toBe(0);
  // A node that starts now connects.
  cluster.kubectl(["delete", "pod", "--namespace=kube-system", podsOf("calico-node")[0]?.metadata.name ?? ""]);
  await cluster.rolledOut("daemonset/calico-node", 120_000);
  for (const { metadata } of podsOf("calico-node"))
    await eventually(() => logOf(metadata.name).includes("connected to Typha"), 60_000);
}, 420_000);

suite("uninstalling as documented also removes Typha and the certificates", async () => {
  expect(await uninstall(cluster)).toEqual([]);
  const ours = ["secrets,configmaps", "--namespace=kube-system", "--selector=app.kubernetes.io/managed-by"];
  expect(cluster.get<{ readonly items: readonly object[] }>(ours).items).toEqual([]);
}, 600_000);
