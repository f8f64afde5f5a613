// Measures the cost of the largest objects: for each kind of input that the owner of a namespace controls, creates, edits
// and deletes one object of the largest size that the API server stores, with a running agent and a real kernel. Prints the
// longest gap of a 10 ms timer in the agent, the slowest answer of its health port, and the time until the agent is idle
// again. Then measures the start of an agent with each of the objects.
//
//   bun bench/hostile.ts [nftables|iptables] [running|start] [NAME …]     names of cases, or parts of them
import { isAvailable, type Cluster, startCluster } from "../test/kubernetes/cluster.ts";
import { openFlows } from "../test/support/flows.ts";
import { type Measured, TimedAgent, type TimedMode } from "../test/support/timed-agent.ts";
import { HOSTILE_CASES, type HostileCase, type HostileObject, NAMESPACE, placeOf } from "./support/hostile-objects.ts";

const LONGEST_GAP_MS = 200;
const CONNECTIONS = 262_144; // the kernel's default limit on this machine
const POLICIES = 2000;

const words = process.argv.slice(2);
const pick = <T extends string>(...all: T[]): T[] =>
  words.some((word) => (all as string[]).includes(word)) ? all.filter((each) => words.includes(each)) : all;
const modes = pick("nftables", "iptables");
const phases = pick("running", "start");
const names = words.filter((word) => !["nftables", "iptables", "running", "start"].includes(word));
const isWanted = (name: string) => names.length === 0 || names.some((each) => name.includes(each));

interface Sized extends HostileCase {
  readonly count: number;
  readonly bytes: number;
}

/** Finds the largest count that the API server accepts, to 3 %. */
async function findSize(cluster: Cluster, each: HostileCase): Promise<Sized> {
  for (let count = each.most; ; count = Math.floor(count * 0.97)) {
    const object = each.build(count, false);
    try {
      await put(cluster, object);
      return { ...each, count, bytes: JSON.stringify(object).length };
    } catch (error) {
      if (count < each.most / 20 || !isTooLarge(error)) throw error;
    } finally {
      await remove(cluster, object);
    }
  }
}

class Refused extends Error {
  override readonly name = "Refused";
}

/** Whether the API server rejected the object because it is too large for it or for etcd. */
function isTooLarge(error: unknown): boolean {
  return error instanceof Refused && /too large|larger than max|limit/i.test(error.message);
}

/** Creates the object, or replaces it if a revision is given. Returns its new revision. */
async function put(cluster: Cluster, object: HostileObject, resourceVersion?: string): Promise<string> {
  const place = placeOf(object);
  const item = `${place}/${object.metadata.name}`;
  const body = { ...object, metadata: { ...object.metadata, resourceVersion } };
  const [method, path] = resourceVersion === undefined ? ["POST", place] : ["PUT", item];
  let written = await request(cluster, method, path, body);
  if (object.status !== undefined)
    written = await request(cluster, "PUT", `${item}/status`, { ...written, status: object.status });
  return written?.metadata.resourceVersion ?? "";
}

async function remove(cluster: Cluster, object: HostileObject): Promise<void> {
  await request(cluster, "DELETE", `${placeOf(object)}/${object.metadata.name}?gracePeriodSeconds=0`);
}

/** @returns undefined if an object to delete does not exist */
async function request(
  cluster: Cluster,
  method: string,
  path: string,
  body?: object,
): Promise<{ readonly metadata: { readonly resourceVersion: string } } | undefined> {
  const { url, ca, adminToken } = cluster.server;
  const response = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
    signal: AbortSignal.timeout(120_000),
    tls: { ca },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  if (response.ok) return JSON.parse(text) as { readonly metadata: { readonly resourceVersion: string } };
  if (method === "DELETE" && response.status === 404) return undefined;
  throw new Refused(`${method} ${path}: ${response.status} ${text.slice(0, 500)}`);
}

/** A failed case does not affect the others. */
async function attempt(name: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    process.exitCode = 1;
    console.log(`${name} failed: ${String(error).slice(0, 300)}`);
  }
}

async function measureRunning(cluster: Cluster, mode: TimedMode, cases: readonly Sized[]): Promise<void> {
  console.log(`\n${mode}, running agent`);
  for (const each of cases)
    await attempt(each.name, async () => {
      await using agent = await TimedAgent.start(mode, { cluster });
      const object = each.build(each.count, false);
      const edited = each.build(each.count, true);
      const all = [...(each.needs ?? []), object];
      try {
        for (const needed of each.needs ?? []) await agent.measureUntilIdle(() => put(cluster, needed));
        console.log(`${each.name}: ${each.count} ${each.unit}, ${Math.round(each.bytes / 1000)} kB`);
        let revision = "";
        const create = async () => void (revision = await put(cluster, object));
        print("create", await agent.measureUntilIdle(create));
        await attempt(`${each.name}, edit`, async () =>
          print("edit", await agent.measureUntilIdle(() => put(cluster, edited, revision))),
        );
        print("delete", await agent.measureUntilIdle(() => remove(cluster, object)));
      } finally {
        for (const needed of all) await remove(cluster, needed);
      }
    });
  for (const [name, measure] of Object.entries({ "many-policies": measurePolicies, connections: measureConnections }))
    if (isWanted(name))
      await attempt(name, async () => {
        await using agent = await TimedAgent.start(mode, { cluster });
        await measure(cluster, agent);
      });
}

/** Many small policies for one pod are created at the same time. */
async function measurePolicies(cluster: Cluster, agent: TimedAgent): Promise<void> {
  const policies = Array.from({ length: POLICIES }, (_, i) => policyOf(i));
  const path = placeOf(policyOf(0));
  console.log(`many-policies: ${POLICIES} policies for one pod`);
  const planted = new Map(policies.map((each) => [`networkpolicies/${NAMESPACE}/${each.metadata.name}`, each]));
  print("create", await agent.measureUntilIdle(() => cluster.plant(planted)));
  print("delete", await agent.measureUntilIdle(() => cluster.api.json({ method: "DELETE", path })));
}

function policyOf(i: number) {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: {
      ...{ name: `policy-${i}`, namespace: NAMESPACE, uid: crypto.randomUUID() },
      creationTimestamp: "2026-01-01T00:00:00Z",
    },
    spec: { podSelector: {}, policyTypes: ["Ingress"], ingress: [{ ports: [{ protocol: "TCP", port: 1 + i }] }] },
  };
}

/** Deletes a pod with as many connections as the kernel can track. */
async function measureConnections(cluster: Cluster, agent: TimedAgent): Promise<void> {
  const opened = openFlows(agent.namespace, "10.65.0.2", CONNECTIONS);
  console.log(`connections: ${opened} connections of one pod`);
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/web`;
  print("delete", await agent.measureUntilIdle(() => cluster.delete(path)));
}

async function measureStart(cluster: Cluster, mode: TimedMode, cases: readonly Sized[]): Promise<void> {
  console.log(`\n${mode}, start with the object`);
  for (const each of cases)
    await attempt(each.name, async () => {
      const objects = [...(each.needs ?? []), each.build(each.count, false)];
      await using agent = await TimedAgent.start(mode, { cluster });
      await agent.stop();
      try {
        for (const object of objects) await put(cluster, object);
        print(each.name, await agent.measureUntilIdle(() => agent.run()));
      } finally {
        for (const object of objects) await remove(cluster, object);
      }
    });
}

function print(what: string, { wallMs, longestGapMs, longestRunMs, slowestProbeMs, userMs, systemMs }: Measured): void {
  const ms = (value: number) => `${value.toFixed(0)} ms`;
  const gap = `longest gap ${ms(longestGapMs).padStart(7)} (${ms(longestRunMs)} CPU)${longestGapMs > LONGEST_GAP_MS ? " !" : "  "}`;
  const cpu = `CPU ${ms(userMs)}, kernel ${ms(systemMs)}`;
  console.log(`  ${what.padEnd(24)} ${ms(wallMs).padStart(9)}; ${gap}; slowest probe ${ms(slowestProbeMs)}; ${cpu}`);
}

if (!isAvailable) console.log("no API server is available here");
else {
  await using cluster = await startCluster({ namespaces: [NAMESPACE], isOwn: true });
  const cases: Sized[] = [];
  for (const each of HOSTILE_CASES)
    if (isWanted(each.name))
      await attempt(each.name, async () => {
        cases.push(await findSize(cluster, each));
      });
  for (const mode of modes) {
    if (phases.includes("running")) await measureRunning(cluster, mode, cases);
    if (phases.includes("start")) await measureStart(cluster, mode, cases);
  }
}
