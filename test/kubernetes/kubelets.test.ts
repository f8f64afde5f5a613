// Tests a Kubernetes cluster of two nodes with real kubelets, as `calico lab up --kubernetes` creates it: DNS, requests
// from the API server to pods, a second `up`, and uninstalling as docs/kubernetes.md describes it. The programs of the
// cluster and the image's Debian layer must be in the cache: `make e2e` builds them.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { makeImage } from "../../scripts/image.ts";
import { isDebianRootCached } from "../../scripts/image/debian-root.ts";
import { examineEverywhere } from "../../scripts/e2e/doctor.ts";
import { uninstall } from "../../scripts/e2e/uninstall.ts";
import { down } from "../../src/lab/down.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { AGNHOST_IMAGE } from "../../src/lab/kubernetes/image-names.ts";
import { CLUSTER_PROGRAMS, programPath } from "../../src/lab/kubernetes/programs.ts";
import type { Lab } from "../../src/lab/lab.ts";
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
const options: LabOptions = resolveLabOptions({ name: "testnodes", kubernetes: true, nodes: 2 });
let lab: Lab;
let cluster: KubernetesCluster;
beforeAll(async () => {
  if (!canRun) return;
  await makeImage();
  lab = await up(options, quiet);
  cluster = new KubernetesCluster(lab);
  apply(service("web", "web1", { port: 80, targetPort: 8080 }));
  apply(server("web1", "node1", ["netexec"]), server("web2", "node2", ["netexec"]));
  ready("web1", "web2");
}, 600_000);
afterAll(async () => {
  if (canRun) await down(options.name, quiet);
}, 60_000);

function apply(...objects: object[]): void {
  cluster.kubectl(["apply", "--filename=-"], JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
}
function ready(...pods: string[]): void {
  cluster.kubectl(["wait", "--for=condition=Ready", "--timeout=120s", ...pods.map((pod) => `pod/${pod}`)]);
}
/** A pod of agnhost on a node. */
function server(name: string, node: string, args: readonly string[], more: object = {}): object {
  const container = { name: "agnhost", image: AGNHOST_IMAGE, imagePullPolicy: "Never", args };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", labels: { name } },
    spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers: [{ ...container, ...more }] },
  };
}
const service = (name: string, pod: string, ports: { readonly port: number; readonly targetPort: number }): object => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name, namespace: "default" },
  spec: { selector: { name: pod }, ports: [ports] },
});

suite("pods resolve the names of services, and no pod reports that cluster DNS is missing", async () => {
  for (const pod of ["web1", "web2"])
    for (const name of ["web:80", "kubernetes.default:443", "web.default.svc.cluster.local:80"])
      await eventually(
        () => cluster.tryKubectl(["exec", pod, "--", "/agnhost", "connect", "--timeout=5s", name]).code === 0,
        30_000,
        `${pod} connects to ${name}`,
      );
  const about = ["events", "--all-namespaces", "--field-selector=reason=MissingClusterDNS"];
  expect(cluster.get<{ readonly items: readonly object[] }>(about).items).toEqual([]);
}, 120_000);

suite("the API server reaches pods on every node, and services", async () => {
  const raw = (path: string) => cluster.tryKubectl(["get", "--raw", `/api/v1/namespaces/default/${path}`]);
  for (const pod of ["web1", "web2"])
    await eventually(
      () => raw(`pods/${pod}:8080/proxy/hostname`).stdout === pod,
      20_000,
      `a proxied request to ${pod}`,
    );
  await eventually(() => raw("services/web:80/proxy/hostname").stdout === "web1", 20_000);
}, 60_000);

suite("the API server calls a webhook that runs in a pod", async () => {
  const { certFile, keyFile } = cluster.authority.issue({
    name: "hook",
    commonName: "hook",
    alternativeNames: ["DNS:hook.default.svc"],
  });
  cluster.kubectl(["create", "secret", "tls", "hook", `--cert=${certFile}`, `--key=${keyFile}`]);
  const tls = ["--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key", "--port=8443"];
  const pod = server("hook", "node2", ["webhook", ...tls], { volumeMounts: [{ name: "tls", mountPath: "/tls" }] }) as {
    spec: object;
  };
  apply(
    { ...pod, spec: { ...pod.spec, volumes: [{ name: "tls", secret: { secretName: "hook" } }] } },
    service("hook", "hook", { port: 443, targetPort: 8443 }),
  );
  ready("hook");
  apply({
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: "deny" },
    webhooks: [
      {
        name: "deny.calico.lab",
        admissionReviewVersions: ["v1"],
        sideEffects: "None",
        failurePolicy: "Fail",
        clientConfig: {
          service: { name: "hook", namespace: "default", path: "/always-deny" },
          caBundle: Buffer.from(await Bun.file(cluster.authority.certFile).bytes()).toString("base64"),
        },
        rules: [
          { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["configmaps"], scope: "*" },
        ],
        matchConditions: [{ name: "only-ours", expression: "object.metadata.name == 'denied'" }],
      },
    ],
  });
  try {
    // The API server notices new webhooks after a moment; dry runs leave nothing.
    const refused = () => cluster.tryKubectl(["create", "configmap", "denied", "--dry-run=server"]).stderr;
    await eventually(() => refused().includes("this webhook denies all requests"), 30_000, refused());
  } finally {
    cluster.kubectl(["delete", "validatingwebhookconfiguration", "deny"]);
  }
}, 120_000);

suite("doctor has no findings on any host, in any calico-node pod, or from outside", async () => {
  expect(await examineEverywhere(cluster)).toEqual([]);
}, 300_000);

suite("up on a running cluster leaves calico-node's template as it is, also where it was edited", async () => {
  const generation = () =>
    cluster.get<{ metadata: { generation: number } }>(["daemonset/calico-node", "--namespace=kube-system"]).metadata
      .generation;
  const applied = generation();
  await up(options, quiet);
  expect(generation()).toBe(applied);
  const edit = ["set", "env", "--namespace=kube-system", "daemonset/calico-node", "CALICO_IPV4POOL_BLOCK_SIZE=27"];
  cluster.kubectl(edit);
  expect(generation()).toBe(applied + 1);
  await up(options, quiet);
  expect(generation()).toBe(applied + 1);
}, 300_000);

suite("kubectl keeps its discovery cache in the lab's folder, not in the user's home", () => {
  const shared = join(homedir(), ".kube/cache/discovery");
  const entries = () =>
    (existsSync(shared) ? readdirSync(shared) : []).filter((entry) => entry.includes(cluster.address));
  expect(entries()).toEqual([]);
  expect(readdirSync(join(lab.folder.path, "kubectl-cache"))).toContain("discovery");
});

suite("uninstalling as documented leaves neither a pod of Calico nor a trace on the nodes", async () => {
  expect(await uninstall(cluster)).toEqual([]);
}, 600_000);
