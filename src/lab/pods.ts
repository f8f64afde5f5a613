// Creates and deletes pods: network namespaces in a host, attached by the real CNI plugin.
import { createHash } from "node:crypto";
import type { LabFolder, LabPod, NewPod } from "./folder.ts";
import { type CommandResult, LabHost } from "./host.ts";
import { InvalidRequest, type LabOptions } from "./options.ts";
import type { LabPlan } from "./plan.ts";
import { datastoreEnvironment, kubernetesAccount, rolePath, SQLITE_PATH } from "./programs.ts";
import { dirname } from "node:path";

/** Maximum number of ADD attempts if the plugin reports "try again later". */
const MAX_ATTEMPTS = 3;
/** https://www.cni.dev/docs/spec/#error */
const TRY_AGAIN_LATER = 11;
const NAME = /^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$/;

export function parsePodName(text: string): { readonly namespace: string; readonly name: string } {
  const [first = "", second] = text.split("/");
  const [namespace, name] = second === undefined ? ["default", first] : [first, second];
  if (!NAME.test(namespace) || !NAME.test(name) || text.split("/").length > 2)
    throw new InvalidRequest(
      `pod ${JSON.stringify(text)}: want NAME or NAMESPACE/NAME, each of at most 42 lower-case letters, digits and -`,
    );
  return { namespace, name };
}

export const podTitle = (pod: { readonly namespace: string; readonly name: string }): string =>
  `${pod.namespace}/${pod.name}`;

export const labelText = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");

/** Name of the pod's network namespace on its host. */
export const podNamespace = (pod: { readonly namespace: string; readonly name: string }): string =>
  `${pod.namespace}.${pod.name}`;

/** Creates the namespace and runs ADD. The caller sets the endpoints' labels, for many pods in one step. */
export function addPod(folder: LabFolder, options: LabOptions, plan: LabPlan, pod: NewPod, uid?: string): LabPod {
  const host = new LabHost(folder, pod.node);
  const made = host.run(["ip", "netns", "add", podNamespace(pod)]);
  const isLeftOver = made.stderr.includes("File exists"); // from an `up` that was killed
  if (isLeftOver) runCni(host, "DEL", options, plan, pod, uid);
  else if (made.code !== 0) throw new Error(`pod ${podTitle(pod)} on ${pod.node}: ${made.stderr.trim()}`);
  host.run(["ip", "-n", podNamespace(pod), "link", "set", "lo", "up"]);
  const added = addWithRetry((command) => runCni(host, command, options, plan, pod, uid));
  if (added.code !== 0) {
    host.run(["ip", "netns", "del", podNamespace(pod)]);
    throw new Error(`pod ${podTitle(pod)} on ${pod.node}: ${cniFault(added.stdout, added.stderr)}`);
  }
  const result = JSON.parse(added.stdout) as { readonly ips: readonly { readonly address: string }[] };
  return { ...pod, addresses: result.ips.map(({ address }) => address.split("/")[0] ?? address) };
}

export function deletePod(folder: LabFolder, options: LabOptions, plan: LabPlan, pod: LabPod): void {
  const host = new LabHost(folder, pod.node);
  const deleted = runCni(host, "DEL", options, plan, pod);
  if (deleted.code !== 0) throw new Error(`pod ${podTitle(pod)}: ${cniFault(deleted.stdout, deleted.stderr)}`);
  host.run(["ip", "netns", "del", podNamespace(pod)]);
}

/** Retries ADD after "try again later", with a DEL in between, like container runtimes. */
export function addWithRetry(run: (command: "ADD" | "DEL") => CommandResult): CommandResult {
  for (let attempt = 1; ; attempt++) {
    const added = run("ADD");
    if (added.code === 0 || attempt === MAX_ATTEMPTS || faultOf(added.stdout)?.code !== TRY_AGAIN_LATER) return added;
    run("DEL");
  }
}

/** The endpoint's name in the datastore: segments joined by `-`, each `-` inside a segment doubled. */
export function endpointName(pod: NewPod): string {
  const double = (text: string) => text.replaceAll("-", "--");
  return `${double(pod.node)}-k8s-${double(pod.name)}-eth0`;
}

function runCni(host: LabHost, command: "ADD" | "DEL", options: LabOptions, plan: LabPlan, pod: NewPod, uid?: string) {
  const kubernetes = `K8S_POD_NAMESPACE=${pod.namespace};K8S_POD_NAME=${pod.name}`;
  const address = pod.requestedAddress === undefined ? "" : `;IP=${pod.requestedAddress}`;
  const plugin = rolePath("calico");
  return host.run([plugin], {
    input: JSON.stringify(networkConfig(options, plan, pod.node)),
    environment: {
      CNI_COMMAND: command,
      CNI_CONTAINERID: containerId(pod),
      CNI_NETNS: `/run/netns/${podNamespace(pod)}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: dirname(plugin),
      CNI_ARGS: `IgnoreUnknown=1;${kubernetes}${address}${uid === undefined ? "" : `;K8S_POD_UID=${uid}`}`,
    },
  });
}

/** The content of a file in /etc/cni/net.d. */
function networkConfig(options: LabOptions, plan: LabPlan, node: string): object {
  return {
    name: "calico-lab",
    cniVersion: "1.0.0",
    type: "calico",
    nodename: node,
    log_level: "error",
    ...datastoreFields(options, plan, node),
    ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: options.ipv6 ? "true" : "false" },
  };
}

function datastoreFields(options: LabOptions, plan: LabPlan, node: string): object {
  if (options.datastore === "sqlite") return { datastore_type: "sqlite", sqlite_path: SQLITE_PATH };
  if (options.datastore === "etcd")
    return { datastore_type: "etcdv3", etcd_endpoints: datastoreEnvironment(options, plan)["ETCD_ENDPOINTS"] };
  const { KUBECONFIG } = kubernetesAccount("calico-cni-plugin", node);
  return { datastore_type: "kubernetes", kubernetes: { kubeconfig: KUBECONFIG }, policy: { type: "k8s" } };
}

const containerId = (pod: NewPod): string =>
  createHash("sha256")
    .update(`${pod.node}/${podNamespace(pod)}`)
    .digest("hex");

function cniFault(stdout: string, stderr: string): string {
  const fault = faultOf(stdout);
  if (fault === undefined) return stderr.trim() || stdout.trim() || "the plugin printed no error";
  return [fault.msg, fault.details].filter(Boolean).join(": ");
}

function faultOf(
  stdout: string,
): { readonly code: number; readonly msg: string; readonly details?: string } | undefined {
  try {
    return JSON.parse(stdout);
  } catch {
    return undefined;
  }
}
