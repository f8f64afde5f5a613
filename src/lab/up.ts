// Creates a lab, step by step. Each step creates only what is missing, so that running `up` again completes an interrupted run,
// and changes nothing in a complete lab.
import { readFileSync } from "node:fs";
import { API_VERSION, type Resource } from "../model/index.ts";
import { NetworkNamespace, openRtnetlink } from "../kernel/index.ts";
import { cidrLength, type IpAddress, parseAddress, parseNetwork } from "../lib/ip/ip.ts";
import { delay } from "../lib/retry.ts";
import { buildFabric, connectHost } from "./fabric.ts";
import { LabFolder, type LabPod, type NewPod } from "./folder.ts";
import { timeoutFactor, LabHost } from "./host.ts";
import { addClusterPods, deleteClusterPod } from "./kubernetes/pods.ts";
import { addApiPods, deleteApiPod, buildApiPrograms, startApi, startControllers } from "./kubernetes/fake-kubelet.ts";
import { Lab } from "./lab.ts";
import { lockLab } from "./lock.ts";
import { type LabOptions, InvalidRequest } from "./options.ts";
import { addPod, deletePod, endpointName } from "./pods.ts";
import { rolePath, startEtcd, startNode, startRouter } from "./programs.ts";
import { untilReady } from "./readiness.ts";
import { stopOrphans, missingPods } from "./recover-hosts.ts";
import { counted, type Terminal } from "./terminal.ts";
import { requireTools, toolsOf } from "./tools.ts";

/** CALICO_LAB_PATIENCE multiplies timeouts, for slow machines. */
const READY_WAIT_MS = 30_000 * timeoutFactor();

export async function up(options: LabOptions, terminal: Terminal): Promise<Lab> {
  rolePath("calico-node"); // fails early if nothing is built
  requireTools(toolsOf(options));
  // loaded on demand
  const kubernetes = options.kubelets ? await import("./kubernetes/up.ts") : undefined;
  kubernetes?.checkPrerequisites(options);
  const folder = new LabFolder(options.name);
  using _ = await lockLab(folder);
  const existing = folder.read();
  if (existing !== undefined && JSON.stringify(existing.options) !== JSON.stringify(options))
    throw new InvalidRequest(
      `lab ${options.name} already exists with ${differences(existing.options, options)}; remove it with calico lab down --name ${options.name}, or use another --name`,
    );
  folder.create();
  const lab = new Lab(folder, existing ?? { options, pods: [], faults: [] });
  const hosts = [...lab.plan.nodes, ...lab.plan.routers];
  folder.write(lab.record);
  if (kubernetes !== undefined) {
    await kubernetes.upKubernetes(lab, terminal);
    const pods = plannedPods(lab);
    if (pods.length > 0) await terminal.step(counted(pods.length, "pod"), () => addPods(lab, pods));
    return lab;
  }

  if (options.datastore === "kubernetes") await buildApiPrograms(terminal);
  await terminal.step(
    `${counted(hosts.length, "host")} on ${counted(lab.plan.segments.length, "network")}, topology ${options.topology}`,
    async () => {
      await stopOrphans(folder, hosts);
      buildFabric(folder, lab.plan);
      for (const host of hosts) connectHost(folder, host);
      await Promise.all(hosts.map((host) => new LabHost(folder, host.name).start()));
    },
  );
  await terminal.step(`datastore ${options.datastore}`, async () => {
    if (options.datastore === "etcd") startEtcd(folder, lab.plan);
    if (options.datastore === "kubernetes") await startApi(lab);
    // A SQLite datastore is created by the first write.
    if (options.datastore !== "sqlite")
      await eventually(
        "the datastore responds",
        () => lab.calicoctl(["get", "ippools", "-o", "json"]),
        folder.log("etcd"),
      );
    lab.apply(lab.plan.resources);
  });
  await terminal.step(`calico-node on ${counted(lab.plan.nodes.length, "host")}`, async () => {
    for (const router of lab.plan.routers) startRouter(folder, router);
    for (const node of lab.plan.nodes) startNode(folder, options, lab.plan, node, lab.record.settings?.[node.name]);
    await Promise.all(lab.plan.nodes.map((node) => untilReady(lab, node.name, READY_WAIT_MS)));
    labelNodes(lab);
    if (options.datastore === "kubernetes") startControllers(lab);
  });
  const missing = missingPods(lab);
  for (const pod of missing) removePod(lab, pod);
  const podsToAdd = [...plannedPods(lab), ...missing.filter((pod) => !isPlanned(lab, pod))];
  if (podsToAdd.length > 0)
    await terminal.step(`${counted(podsToAdd.length, "pod")} through the CNI plugin`, () => addPods(lab, podsToAdd));
  if (lab.record.pods.length > 0) await terminal.step("routes between the hosts", () => waitForRoutes(lab));
  return lab;
}

/** Describes how the options of an existing lab differ from the requested ones. */
function differences(existing: LabOptions, requested: LabOptions): string {
  const words: Record<string, string> = { podsPerNode: "pods", kubelets: "kubernetes" };
  return (Object.keys(requested) as (keyof LabOptions)[])
    .filter((key) => existing[key] !== requested[key])
    .map((key) => `${words[key] ?? key} ${existing[key]} instead of ${requested[key]}`)
    .join(", ");
}

/**
 * Waits until every host has a route to every pod. With BGP, a node of a rack needs only its default route, because the router
 * has the others. With an overlay, the nodes need routes to pods, and the routers only routes to the nodes.
 */
async function waitForRoutes(lab: Lab): Promise<void> {
  const pods = lab.record.pods.flatMap((pod) => pod.addresses.map(parseAddress));
  const nodes = lab.plan.nodes.flatMap(({ interfaces }) =>
    interfaces.flatMap((nic) => nic.addresses.map((network) => parseNetwork(network).address)),
  );
  const isRack = lab.options.topology === "racks";
  const isOverlay = lab.options.backend === "vxlan";
  const deadline = performance.now() + READY_WAIT_MS;
  for (const { name } of isRack ? lab.plan.routers : [])
    await waitForHostRoutes(lab, name, isOverlay ? nodes : pods, deadline);
  for (const { name } of lab.plan.nodes) await waitForHostRoutes(lab, name, pods, deadline, isRack && !isOverlay);
}

async function waitForHostRoutes(
  lab: Lab,
  host: string,
  addresses: readonly IpAddress[],
  deadline: number,
  isDefaultEnough = false,
): Promise<void> {
  using namespace = NetworkNamespace.named(lab.folder.namespace(host));
  using kernel = openRtnetlink(namespace);
  const isRouted = (address: IpAddress) => {
    const route = kernel.routes.lookup(address);
    return route !== undefined && route.type === "unicast" && (isDefaultEnough || cidrLength(route.destination) > 0);
  };
  while (!addresses.every(isRouted)) {
    const missing = addresses.filter((address) => !isRouted(address));
    if (performance.now() > deadline) throw new Error(`${host} has no route to ${missing.slice(0, 3).join(", ")}`);
    await delay(20);
  }
}

/** Adds missing pods. Without a Kubernetes API, also sets the labels and profiles of their endpoints. */
export function addPods(lab: Lab, pods: readonly NewPod[]): void {
  const { cluster } = lab;
  if (cluster !== undefined) return addClusterPods(cluster, pods);
  const missing = pods.filter(
    (pod) => !lab.record.pods.some((p) => p.namespace === pod.namespace && p.name === pod.name),
  );
  if (missing.length === 0) return;
  if (lab.options.datastore === "kubernetes") return addApiPods(lab, missing);
  lab.apply(namespaceProfiles(missing));
  const added = missing.map((pod) => addPod(lab.folder, lab.options, lab.plan, pod));
  labelEndpoints(lab, missing);
  // last, because a pod in the record must be complete
  lab.update({ pods: [...lab.record.pods, ...added] });
}

export function removePod(lab: Lab, pod: LabPod): void {
  const { cluster } = lab;
  if (cluster !== undefined) return deleteClusterPod(cluster, pod);
  if (lab.options.datastore === "kubernetes") deleteApiPod(lab, pod);
  else deletePod(lab.folder, lab.options, lab.plan, pod);
  lab.update({ pods: lab.record.pods.filter((each) => each !== pod) });
}

/** Creates the profiles that a cluster's controllers would create: they allow all traffic and apply the namespace's labels. */
function namespaceProfiles(pods: readonly NewPod[]): Resource[] {
  return [...new Set(pods.map((pod) => pod.namespace))].map((namespace) => ({
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { name: `kns.${namespace}` },
    spec: {
      ingress: [{ action: "Allow" }],
      egress: [{ action: "Allow" }],
      labelsToApply: { "pcns.projectcalico.org/name": namespace, "pcns.kubernetes.io/metadata.name": namespace },
    },
  }));
}

function labelEndpoints(lab: Lab, pods: readonly NewPod[]): void {
  const stored = JSON.parse(lab.calicoctl(["get", "workloadendpoints", "--all-namespaces", "-o", "json"])) as {
    readonly items: readonly Resource<"WorkloadEndpoint", { readonly profiles?: readonly string[] }>[];
  };
  const changed = pods.flatMap((pod) => {
    const endpoint = stored.items.find(
      ({ metadata }) => metadata.name === endpointName(pod) && metadata.namespace === pod.namespace,
    );
    if (endpoint === undefined) throw new Error(`the plugin stored no endpoint for ${pod.namespace}/${pod.name}`);
    const labels = { ...endpoint.metadata.labels, name: pod.name, ...pod.labels };
    const { resourceVersion: _, ...metadata } = endpoint.metadata;
    return [
      {
        ...endpoint,
        metadata: { ...metadata, labels },
        spec: { ...endpoint.spec, profiles: [`kns.${pod.namespace}`] },
      },
    ];
  });
  lab.apply(changed);
}

/** Sets node labels and route reflector IDs, like an operator. */
function labelNodes(lab: Lab): void {
  for (const { name, labels, reflectorClusterId } of lab.plan.nodes) {
    for (const [key, value] of Object.entries(labels))
      lab.calicoctl(["label", "nodes", name, `${key}=${value}`, "--overwrite"]);
    if (reflectorClusterId === undefined) continue;
    const patch = JSON.stringify({ spec: { bgp: { routeReflectorClusterID: reflectorClusterId } } });
    lab.calicoctl(["patch", "node", name, "-p", patch]);
  }
}

const isPlanned = (lab: Lab, { namespace, name }: LabPod): boolean =>
  plannedPods(lab).some((pod) => pod.namespace === namespace && pod.name === name);

/** Pods spread over the nodes: pod1, pod2, … in namespace default. */
function plannedPods(lab: Lab): NewPod[] {
  return lab.plan.nodes.flatMap((node, n) =>
    Array.from({ length: lab.options.podsPerNode }, (_, i) => ({
      namespace: "default",
      name: `pod${n * lab.options.podsPerNode + i + 1}`,
      node: node.name,
      labels: { app: `app${i + 1}` },
    })),
  );
}

async function eventually(what: string, attempt: () => unknown, log: string): Promise<void> {
  const deadline = performance.now() + READY_WAIT_MS;
  for (;;) {
    try {
      attempt();
      return;
    } catch (error) {
      if (performance.now() > deadline)
        throw new Error(`timed out waiting until ${what} (${readTail(log)})`, { cause: error });
      await delay(50);
    }
  }
}

function readTail(log: string): string {
  try {
    return readFileSync(log, "utf8").trim().split("\n").at(-1) ?? "";
  } catch {
    return "no log";
  }
}
