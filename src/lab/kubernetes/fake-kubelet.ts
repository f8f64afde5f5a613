// Replaces kubelets and Kubernetes controllers in a lab with an API server but without kubelets: registers hosts as nodes,
// creates default service accounts, creates Pod objects, attaches their namespaces with the CNI plugin, and reports the
// addresses in their status. calico-node runs directly on the hosts, with its service account from the manifest.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LabPod } from "../folder.ts";
import { LabHost } from "../host.ts";
import type { Lab } from "../lab.ts";
import { addPod, deletePod } from "../pods.ts";
import { accountKubeconfig, ADMIN_KUBECONFIG, kubernetesAccount, rolePath } from "../programs.ts";
import type { Terminal } from "../terminal.ts";
import { KubernetesCluster } from "./cluster.ts";
import { ADMIN, apiServerUrl, startApiServer } from "./control-plane.ts";
import { listOf, manifestObjects, manifestPath } from "./network.ts";
import { obtainPrograms } from "./programs.ts";

const WAIT_MS = 120_000;
/** The manifest's admission policies limit these accounts to objects of their own node, so each node has its own tokens. */
const NODE_ACCOUNTS = ["calico-node", "calico-cni-plugin"] as const;
const CONTROLLERS = "calico-kube-controllers";
/** Not applied from the manifest: the lab runs these programs on the hosts. */
const WORKLOADS = ["DaemonSet", "Deployment", "PodDisruptionBudget"];

type PodSpec = Omit<LabPod, "addresses">;

/** Builds missing programs, before the lab is created. */
export const buildApiPrograms = (terminal: Terminal): Promise<void> =>
  obtainPrograms(["kube-apiserver", "kubectl"], terminal);

/** Starts the API server, applies Calico's definitions and accounts, and registers the hosts as nodes. */
export async function startApi(lab: Lab): Promise<void> {
  const cluster = new KubernetesCluster(lab);
  const { authority } = cluster;
  const server = apiServerUrl(cluster.address);
  copyFileSync(authority.kubeconfig(server, ADMIN), sharedFile(lab, ADMIN_KUBECONFIG));
  await startServer(lab);
  const applied = manifestObjects(manifestPath("calico.yaml")).filter(({ kind }) => !WORKLOADS.includes(kind));
  cluster.kubectl(["apply", "--server-side", "--filename=-"], listOf(applied));
  const definitions = applied.filter(({ kind }) => kind === "CustomResourceDefinition");
  cluster.kubectl([
    "wait",
    "--for=condition=Established",
    `--timeout=${WAIT_MS / 1000}s`,
    ...definitions.map(({ metadata }) => `customresourcedefinition/${metadata.name}`),
  ]);
  // Created, not applied: server-side apply rejects two addresses of the same type, which dual-stack nodes have.
  const made = cluster.tryKubectl(["create", "--filename=-"], listOf(nodeObjects(lab)));
  if (made.code !== 0 && !made.stderr.includes("AlreadyExists"))
    throw new Error(`cannot register the hosts as nodes: ${made.stderr.trim()}`);
  const ca = readFileSync(authority.certFile).toString("base64");
  const writeAccount = (account: string, node?: string) => {
    const binding = node === undefined ? [] : ["--bound-object-kind=Node", `--bound-object-name=${node}`];
    const words = ["create", "token", account, "--namespace=kube-system", "--duration=24h", ...binding];
    const file = accountKubeconfig(account, node);
    const write = (name: string, text: string) => writeFileSync(sharedFile(lab, name), text, { mode: 0o600 });
    write(`${file}.token`, cluster.kubectl(words).trim());
    write(file, kubeconfigOf(server, ca, `${file}.token`));
  };
  writeAccount(CONTROLLERS);
  for (const account of NODE_ACCOUNTS) for (const { name } of lab.plan.nodes) writeAccount(account, name);
}

/** Starts the API server unless it runs. Its data is kept in etcd. */
export async function startServer(lab: Lab): Promise<void> {
  const cluster = new KubernetesCluster(lab);
  const audit = { "audit-policy-file": join(lab.folder.path, "audit.json"), "audit-log-path": auditLog(lab) };
  writeFileSync(audit["audit-policy-file"], JSON.stringify(AUDIT_POLICY));
  startApiServer(cluster, audit);
  await cluster.until("the API server responds", () => cluster.kubectl(["get", "--raw", "/readyz"]) === "ok", WAIT_MS);
}

/** One JSON line per request, with metadata only. */
export const auditLog = (lab: Lab): string => lab.folder.log("audit");
const AUDIT_POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived", "ResponseStarted"],
  rules: [{ level: "Metadata" }],
};

/** Starts calico-kube-controllers on the first host. */
export function startControllers(lab: Lab): void {
  const [first] = lab.plan.nodes;
  if (first === undefined) return;
  const host = new LabHost(lab.folder, first.name);
  if (host.program(CONTROLLERS) !== undefined) return;
  host.startProgram(CONTROLLERS, [rolePath(CONTROLLERS), "--status-file=/run/kube-controllers.json"], {
    ...kubernetesAccount(CONTROLLERS),
    ENABLED_CONTROLLERS: "node,loadbalancer",
    POD_NAMESPACE: "kube-system",
  });
}

/** Adds pods: first the objects, then their addresses. */
export function addApiPods(lab: Lab, pods: readonly PodSpec[]): void {
  const cluster = new KubernetesCluster(lab);
  const names = [...new Set(pods.map(({ namespace }) => namespace))];
  // Created, not applied, to keep labels of existing namespaces.
  for (const name of names) cluster.tryKubectl(["create", "namespace", name]);
  for (const name of names) cluster.tryKubectl(["create", "serviceaccount", "default", `--namespace=${name}`]);
  const made = cluster.kubectl(
    ["apply", "--server-side", "--output=json", "--filename=-"],
    listOf(pods.map(podObject)),
  );
  const objects = itemsOf(made);
  for (const pod of pods) {
    const uid = objects.find(({ metadata }) => metadata.name === pod.name && metadata.namespace === pod.namespace)
      ?.metadata.uid;
    const added = addPod(lab.folder, lab.options, lab.plan, pod, uid);
    reportRunning(cluster, added);
    lab.update({ pods: [...lab.record.pods, added] });
  }
}

export function deleteApiPod(lab: Lab, pod: LabPod): void {
  const cluster = new KubernetesCluster(lab);
  const words = ["delete", "pod", pod.name, `--namespace=${pod.namespace}`, "--ignore-not-found", "--wait=false"];
  cluster.kubectl(words);
  deletePod(lab.folder, lab.options, lab.plan, pod);
  cluster.kubectl([...words, "--grace-period=0", "--force"]);
}

const CONTAINER = "pod";

/** Writes the status of a running pod, like a kubelet. */
function reportRunning(cluster: KubernetesCluster, pod: LabPod): void {
  const [podIP] = pod.addresses;
  const status = {
    phase: "Running",
    podIP,
    podIPs: pod.addresses.map((ip) => ({ ip })),
    conditions: [{ type: "Ready", status: "True" }],
    containerStatuses: [
      { name: CONTAINER, ready: true, restartCount: 0, image: "none", imageID: "none", state: { running: {} } },
    ],
  };
  const where = ["pod", pod.name, `--namespace=${pod.namespace}`, "--subresource=status"];
  cluster.kubectl(["patch", ...where, "--patch", JSON.stringify({ status })]);
}

function podObject(pod: PodSpec): object {
  const { namespace, name, node, labels, ports = [] } = pod;
  const container = {
    name: CONTAINER,
    image: "none",
    ports: ports.map(({ name: port, protocol, port: containerPort }) => ({ name: port, protocol, containerPort })),
  };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace, name, labels: { name, ...labels } },
    spec: { nodeName: node, containers: [container] },
  };
}

function nodeObjects(lab: Lab): object[] {
  return lab.plan.nodes.map(({ name, interfaces }) => {
    const addresses = (interfaces[0]?.addresses ?? []).map((network) => network.split("/")[0]);
    return {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name, labels: { "kubernetes.io/os": "linux", "kubernetes.io/hostname": name } },
      status: {
        addresses: addresses.map((address) => ({ type: "InternalIP", address })),
        conditions: [{ type: "Ready", status: "True", reason: "LabHost", message: "lab host without a kubelet" }],
      },
    };
  });
}

const sharedFile = (lab: Lab, name: string): string => join(lab.folder.shared, name);

interface PodObject {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly uid: string };
}
/** kubectl prints a single object without a list. */
function itemsOf(text: string): readonly PodObject[] {
  const printed = JSON.parse(text) as PodObject | { readonly items: readonly PodObject[] };
  return "items" in printed ? printed.items : [printed];
}

/** Uses the account whose token file is next to it. */
function kubeconfigOf(server: string, ca: string, tokenFile: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "lab",
    clusters: [{ name: "lab", cluster: { server, "certificate-authority-data": ca } }],
    users: [{ name: "account", user: { tokenFile } }],
    contexts: [{ name: "lab", context: { cluster: "lab", user: "account" } }],
  });
}
