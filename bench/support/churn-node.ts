// The part of memory-churn.ts that runs on the lab host: starts and stops pods, edits policies, replaces nodes, and
// measures the processes of calico-node.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { Client, type KubeApi, openKubeApi } from "../../src/datastore/index.ts";
import { rolePath } from "../../src/lab/programs.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../../src/model/index.ts";
import { openNodeDatastore } from "../../src/node/node-datastore.ts";
import type { SupervisorState } from "../../src/node/supervisor/supervisor.ts";

const PODS = Number(process.env["CHURN_PODS"] ?? 10_000);
const CHECKPOINTS = [0.05, 0.5, 1];
const MAX_GROWTH = 1.15;
const SLOTS = 20;
const WORKERS = 5;
const POLICIES = 40;
const OTHER_NODES = 10;
const NODE = process.env["NODENAME"] ?? "node1";
const STATISTICS = process.env["FORCE_GC_FOLDER"] ?? "";

await using opened = await openNodeDatastore(process.env);
const client = new Client(opened.store);
const kubernetes =
  opened.config.type === "kubernetes"
    ? await openKubeApi({ ...opened.config, clientQps: 1000, clientBurst: 1000 }, process.env)
    : undefined;

interface Pod {
  readonly name: string;
  readonly uid?: string;
}

const NETWORK = {
  name: "churn",
  cniVersion: "1.0.0",
  type: "calico",
  nodename: NODE,
  log_level: "error",
  ...datastoreFields(),
  ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "false" },
};

let started = 0;
let edits = 0;
let nodeChanges = 0;
const policyNames = Array.from({ length: POLICIES }, () => 0);
const nodeGenerations = Array.from({ length: OTHER_NODES }, () => 0);
const totals: number[] = [];
const slots: (Pod | undefined)[] = Array.from({ length: SLOTS }, () => undefined);
for (let i = 0; i < SLOTS; i++) execFileSync("ip", ["netns", "add", `slot${i}`]);
if (kubernetes !== undefined)
  await createIgnoringExisting("/api/v1/namespaces/default/serviceaccounts", {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { name: "default" },
  });
else
  await client.apply(
    resource("Profile", "kns.default", { ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] }),
  );
for (let i = 0; i < POLICIES; i++) await client.apply(policy(i, 0));
for (let i = 0; i < OTHER_NODES; i++) await addNode(i, 0);

const begin = performance.now();
for (const share of CHECKPOINTS) {
  const goal = Math.round(PODS * share);
  await Promise.all(Array.from({ length: WORKERS }, (_, worker) => work(worker, goal)));
  await untilQuiet();
  totals.push(await measure(share));
}
const growth = (totals.at(-1) ?? 0) / (totals[0] ?? 1);
const isFine = growth <= MAX_GROWTH;
console.log(
  `${started} pods, ${edits} policy edits, ${nodeChanges} node changes in ${seconds()} s on ${opened.config.type}`,
);
console.log(`last / first: ${growth.toFixed(2)} (at most ${MAX_GROWTH}): ${isFine ? "fine" : "TOO MUCH"}`);
process.exitCode = isFine ? 0 : 1;

function seconds(): string {
  return ((performance.now() - begin) / 1000).toFixed(0);
}

/** Each worker has its own slots: stops the pod in one of them and starts the next. */
async function work(worker: number, goal: number): Promise<void> {
  while (started < goal) {
    const number = started++;
    const slot = worker + WORKERS * (Math.floor(number / WORKERS) % (SLOTS / WORKERS));
    const previous = slots[slot];
    if (previous !== undefined) await stopPod(slot, previous);
    slots[slot] = await startPod(slot, number);
    if (number % 2 === 0) await editPolicy(edits++);
    if (number % 10 === 0) await replaceNode(nodeChanges++);
  }
}

async function startPod(slot: number, number: number): Promise<Pod> {
  const name = `pod-${number}-${createHash("sha256").update(`${number}`).digest("hex").slice(0, 5)}`;
  if (kubernetes === undefined) {
    await cni("ADD", slot, { name });
    return { name };
  }
  const object = await kubernetes.json<{ metadata: { uid: string } }>({
    method: "POST",
    path: "/api/v1/namespaces/default/pods",
    body: {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: { app: `app-${number % 7}`, "pod-template-hash": name } },
      spec: { nodeName: NODE, containers: [{ name: "pod", image: "none" }] },
    },
  });
  const pod = { name, uid: object.metadata.uid };
  const result = await cni("ADD", slot, pod);
  const ips = (JSON.parse(result) as { ips: { address: string }[] }).ips.map(
    ({ address }) => address.split("/")[0] ?? "",
  );
  await kubernetes.json({
    method: "PATCH",
    path: `/api/v1/namespaces/default/pods/${name}/status`,
    contentType: "application/merge-patch+json",
    body: { status: { phase: "Running", podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) } },
  });
  return pod;
}

async function stopPod(slot: number, pod: Pod): Promise<void> {
  await cni("DEL", slot, pod);
  await kubernetes?.json({
    method: "DELETE",
    path: `/api/v1/namespaces/default/pods/${pod.name}`,
    body: { apiVersion: "v1", kind: "DeleteOptions", gracePeriodSeconds: 0 },
  });
}

async function cni(command: "ADD" | "DEL", slot: number, pod: Pod): Promise<string> {
  const plugin = rolePath("calico");
  const uid = pod.uid === undefined ? "" : `;K8S_POD_UID=${pod.uid}`;
  const child = Bun.spawn([plugin], {
    stdin: Buffer.from(JSON.stringify(NETWORK)),
    stdout: "pipe",
    stderr: "pipe",
    env: {
      PATH: process.env["PATH"],
      CNI_COMMAND: command,
      CNI_CONTAINERID: createHash("sha256").update(pod.name).digest("hex"),
      CNI_NETNS: `/run/netns/slot${slot}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: dirname(plugin),
      CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${pod.name}${uid}`,
    },
  });
  const [stdout, stderr] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  if ((await child.exited) !== 0) throw new Error(`${command} ${pod.name}: ${stdout}${stderr}`);
  return stdout;
}

async function editPolicy(number: number): Promise<void> {
  const index = number % POLICIES;
  const isReplaced = Math.floor(number / POLICIES) % 5 === 4;
  if (isReplaced) {
    await client.delete({ kind: "GlobalNetworkPolicy", name: policyName(index) });
    policyNames[index] = number;
  }
  await client.apply(policy(index, number));
}

function policyName(index: number): string {
  return `policy-${index}-${policyNames[index] ?? 0}`;
}

function policy(index: number, number: number): Resource {
  const port = 1000 + (number % 50_000);
  const source = {
    selector: `app == 'app-${number % 11}' || batch == '${number}'`,
    nets: [`10.${number % 250}.0.0/16`],
  };
  return resource("GlobalNetworkPolicy", policyName(index), {
    order: index,
    selector: `projectcalico.org/namespace == 'default' && batch != '${number}'`,
    types: ["Ingress", "Egress"],
    ingress: [{ action: "Allow", protocol: "TCP", source, destination: { ports: [port, `${port + 1}:${port + 9}`] } }],
    egress: [{ action: "Allow" }],
  });
}

async function replaceNode(number: number): Promise<void> {
  const index = number % OTHER_NODES;
  const name = nodeName(index);
  if (kubernetes === undefined) await client.delete({ kind: "Node", name });
  else await kubernetes.json({ method: "DELETE", path: `/api/v1/nodes/${name}` });
  nodeGenerations[index] = number + 1;
  await addNode(index, number + 1);
}

function nodeName(index: number): string {
  return `other-${index}-${nodeGenerations[index] ?? 0}`;
}

async function addNode(index: number, number: number): Promise<void> {
  const address = `10.77.${100 + Math.floor(number / 250)}.${1 + (number % 250)}`;
  const name = nodeName(index);
  if (kubernetes === undefined) {
    await client.apply(resource("Node", name, { bgp: { ipv4Address: `${address}/16`, asNumber: 64512 } }));
    return;
  }
  await kubernetes.json({
    method: "POST",
    path: "/api/v1/nodes",
    body: {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name, annotations: { "projectcalico.org/IPv4Address": `${address}/16` } },
      status: { addresses: [{ type: "InternalIP", address }] },
    },
  });
}

function resource(kind: KindName, name: string, spec: object): Resource {
  return { apiVersion: API_VERSION, kind, metadata: { name }, spec };
}

async function createIgnoringExisting(path: string, body: object): Promise<void> {
  await (kubernetes as KubeApi).json({ method: "POST", path, body }).catch((error: { code?: number }) => {
    if (error.code !== 409) throw error;
  });
}

/** Waits until no process of the node has used CPU time for a second. */
async function untilQuiet(): Promise<void> {
  let last = -1;
  await eventually(
    async () => {
      await Bun.sleep(1000);
      const ticks = processes().reduce((sum, { pid }) => sum + cpuTicks(pid), 0);
      const isQuiet = ticks - last <= 5;
      last = ticks;
      return isQuiet;
    },
    120_000,
    "calico-node has nothing to do",
  );
}

function processes(): { readonly name: string; readonly pid: number }[] {
  const state = JSON.parse(readFileSync("/run/calico/supervisor.json", "utf8")) as SupervisorState;
  return [
    { name: "node", pid: state.pid },
    ...state.children.flatMap(({ name, pid }) => (pid === undefined ? [] : [{ name, pid }])),
  ];
}

function cpuTicks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** Forces a garbage collection in every process and returns the node's PSS in MB. */
async function measure(share: number): Promise<number> {
  const found = processes();
  for (const { name, pid } of found) {
    if (name.startsWith("bird")) continue;
    const file = join(STATISTICS, `${pid}.json`);
    rmSync(file, { force: true });
    process.kill(pid, "SIGURG");
    await eventually(() => existsSync(file), 20_000, `${name} has collected its garbage`);
  }
  await untilQuiet(); // the allocator returns pages in the background
  const parts = found.map(({ name, pid }) => {
    const [, pss] = /^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")) ?? [];
    return { name, mb: Number(pss) / 1024 };
  });
  const total = parts.reduce((sum, { mb }) => sum + mb, 0);
  const details = parts.map(({ name, mb }) => `${name} ${mb.toFixed(1)}`).join(", ");
  console.log(
    `${(share * 100).toFixed(0).padStart(3)} % after ${seconds()} s: PSS ${total.toFixed(1)} MB (${details})`,
  );
  const kept = process.env["CHURN_STATISTICS"];
  if (kept !== undefined) {
    mkdirSync(join(kept, String(share)), { recursive: true });
    for (const { name, pid } of found) {
      if (!name.startsWith("bird")) cpSync(join(STATISTICS, `${pid}.json`), join(kept, String(share), `${name}.json`));
      cpSync(`/proc/${pid}/smaps`, join(kept, String(share), `${name}.smaps`));
    }
  }
  return total;
}

function datastoreFields(): object {
  const { env } = process;
  if (opened.config.type === "sqlite") return { datastore_type: "sqlite", sqlite_path: env["CALICO_SQLITE_PATH"] };
  if (opened.config.type === "etcdv3") return { datastore_type: "etcdv3", etcd_endpoints: env["ETCD_ENDPOINTS"] };
  const folder = dirname(env["KUBECONFIG"] ?? "");
  return {
    datastore_type: "kubernetes",
    kubernetes: { kubeconfig: join(folder, `calico-cni-plugin.${NODE}.kubeconfig`) },
    policy: { type: "k8s" },
  };
}
