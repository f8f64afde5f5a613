// Tests that no packets are lost while parts of a node are killed or restarted: pings between pods on three hosts, in both
// families, over BGP routes. Also tests the deletion of a node.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { down } from "../../../src/lab/down.ts";
import { setConnected } from "../../../src/lab/fabric.ts";
import type { Lab } from "../../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../../src/lab/options.ts";
import { stopProcesses } from "../../../src/lab/process.ts";
import { datastoreEnvironment, rolePath, startNode } from "../../../src/lab/programs.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";
import { untilReady } from "../../../src/lab/readiness.ts";
import { up } from "../../../src/lab/up.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION } from "../../../src/model/index.ts";
import type { ChildState, SupervisorState } from "../../../src/node/supervisor/supervisor.ts";
import { Pings } from "./pings.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
const quiet = openTerminal({ quiet: true });
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testkill", nodes: 3, podsPerNode: 1, ipv6: true };
let lab: Lab;

beforeAll(async () => {
  lab = await up(options, quiet);
}, 90_000);
afterAll(() => down(options.name, quiet), 30_000);

const supervised = (node: string): SupervisorState =>
  JSON.parse(lab.host(node).run(["cat", "/run/calico/supervisor.json"]).stdout) as SupervisorState;
const part = (node: string, name: string): ChildState | undefined =>
  supervised(node).children.find((child) => child.name === name);
const probe = (node: string, ...flags: string[]) =>
  lab.host(node).run([rolePath("calico-node"), ...flags], {
    environment: { ...datastoreEnvironment(lab.options, lab.plan), NODENAME: node },
  });
const bird = (node: string, family: 4 | 6, command: string) =>
  lab.host(node).run(["birdc", "-s", `/run/calico/bird${family === 6 ? "6" : ""}.ctl`, ...command.split(" ")]).stdout;
/** All sessions are established, and BIRD's recovery has finished. */
const isConverged = (node: string, families: readonly (4 | 6)[] = [4, 6]) =>
  families.every(
    (family) =>
      (bird(node, family, "show protocols").match(/Established/g) ?? []).length === 2 &&
      !bird(node, family, "show status").includes("Graceful restart"),
  );
const routes = (node: string) =>
  ["-4", "-6"].flatMap((family) =>
    lab
      .host(node)
      .run(["ip", family, "route", "show", "proto", "bird"])
      .stdout.split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== ""),
  );

async function killAgain(node: string, name: string): Promise<ChildState> {
  const child = await eventually(() => {
    const found = part(node, name);
    return found?.state === "running" && found.pid !== undefined && found;
  });
  process.kill(child.pid!, "SIGKILL");
  return eventually(() => {
    const now = part(node, name);
    return now !== undefined && now.pid !== child.pid && now;
  }, 20_000);
}

test("the hosts have routes to each other's blocks", async () => {
  for (const node of ["node1", "node2", "node3"]) await eventually(() => isConverged(node), 40_000, node);
}, 60_000);

test("NB-122 no ping is lost when BIRD is killed and restarted", async () => {
  await using pings = new Pings(lab);
  await pings.more(10);
  for (const name of ["bird", "bird6"]) await killAgain("node1", name);
  await eventually(() => isConverged("node1"), 60_000, "BIRD has recovered");
  await pings.more(20);
  expect(pings.flows).toBe(12);
  expect(pings.lost()).toEqual({});
}, 120_000);

test("no ping is lost when the node is stopped and started", async () => {
  await using pings = new Pings(lab);
  await pings.more(10);
  const [node] = lab.plan.nodes;
  const process = lab.host("node1").program("calico-node");
  if (node === undefined || process === undefined) throw new Error("node1 does not run");
  await stopProcesses([process], 15_000);
  await pings.more(20); // while the node is stopped
  startNode(lab.folder, lab.options, lab.plan, node);
  await untilReady(lab, "node1", 60_000);
  await eventually(() => isConverged("node1"), 60_000, "BIRD has recovered");
  await pings.more(20);
  expect(pings.lost()).toEqual({});
}, 150_000);

test("NB-010 NB-011 SIGKILL of each child: probes fail meanwhile, it is restarted, and no route or ping is lost", async () => {
  await using pings = new Pings(lab);
  await pings.more(10);
  const before = routes("node2");
  expect(before.length).toBeGreaterThan(3);
  let changes = 0;
  const watch = setInterval(() => (changes += String(routes("node2")) === String(before) ? 0 : 1), 200);
  try {
    await Promise.all([killUntilProbeFails("bird", "-bird-live", 4), killUntilProbeFails("bird6", "-bird6-live", 6)]);
    await Promise.all([killUntilProbeFails("confd", "-bird-live"), killUntilProbeFails("felix", "-felix-live")]);
    await eventually(() => isConverged("node2"), 70_000, "BIRD has recovered");
  } finally {
    clearInterval(watch);
  }
  expect(changes).toBe(0);
  await pings.more(20);
  expect(pings.lost()).toEqual({});
}, 300_000);

/**
 * Kills the child repeatedly until a probe fails: each restart is delayed longer, finally long enough for a probe, even on a
 * busy machine.
 * @param family of a BIRD, which must recover before it is killed again: otherwise its peers delete its routes
 */
async function killUntilProbeFails(name: string, flag: string, family?: 4 | 6): Promise<void> {
  let hasProbeFailed = false;
  let kills = 0;
  for (; kills < 7 && !(hasProbeFailed && kills > 1); kills++) {
    if (kills > 0 && family !== undefined)
      await eventually(() => isConverged("node2", [family]), 70_000, "BIRD has recovered");
    await killAgain("node2", name);
    hasProbeFailed = probe("node2", flag).code === 1;
  }
  expect(hasProbeFailed).toBe(true);
  await eventually(() => part("node2", name)?.state === "running" && probe("node2", flag).code === 0, 20_000, name);
  expect(part("node2", name)?.restarts).toBeGreaterThanOrEqual(kills);
}

test("SIGKILL of calico-node: its children continue, and the next calico-node replaces them", async () => {
  await using pings = new Pings(lab);
  await pings.more(10);
  const [, node] = lab.plan.nodes;
  if (node === undefined) throw new Error("no node2");
  const children = supervised("node2").children.flatMap(({ pid }) => pid ?? []);
  process.kill(supervised("node2").pid, "SIGKILL");
  for (const pid of children) expect(readFileSync(`/proc/${pid}/stat`, "utf8")).not.toContain(") Z ");
  expect(probe("node2", "-felix-live", "-bird-live", "-bird6-live").code).toBe(0); // the children still run
  const doctor = lab.host("node2").run([rolePath("calicoctl"), "doctor"], {
    environment: datastoreEnvironment(lab.options, lab.plan),
  });
  expect(doctor).toMatchObject({ code: 3, stdout: expect.stringContaining("calico-node is not running on node2") });
  startNode(lab.folder, lab.options, lab.plan, node);
  await untilReady(lab, "node2", 60_000);
  await eventually(() => isConverged("node2"), 60_000, "BIRD has recovered");
  await pings.more(20);
  expect(pings.lost()).toEqual({});
}, 120_000);

test("NB-012 NB-013 with a failed peer, a restarted node becomes ready and keeps its routes", async () => {
  const [node, , dead] = lab.plan.nodes;
  const [nic] = dead?.interfaces ?? [];
  if (node === undefined || dead === undefined || nic === undefined) throw new Error("no node1, no node3");
  const process = lab.host("node1").program("calico-node");
  if (process === undefined) throw new Error("node1 does not run");
  const before = routes("node1");
  setConnected(lab.folder, dead, nic, false);
  try {
    await stopProcesses([process], 15_000);
    startNode(lab.folder, lab.options, lab.plan, node);
    await untilReady(lab, "node1", 45_000);
    expect(probe("node1", "-bird-ready", "-bird6-ready").code).toBe(0);
    // Only BIRD still waits for the peer; all routes are kept.
    expect(bird("node1", 4, "show status")).toContain("Graceful restart recovery in progress");
    expect(bird("node1", 4, "show protocols")).toMatch(/Mesh_10_77_0_12 .*Established/);
    expect(routes("node1")).toEqual(before);
    // With Calico's rule, the node is not ready.
    const strict = lab.host("node1").run([rolePath("calico-node"), "-bird-ready"], {
      environment: { ...datastoreEnvironment(lab.options, lab.plan), CALICO_BIRD_READY: "peers" },
    });
    expect(strict).toMatchObject({ code: 1, stdout: expect.stringContaining("10.77.0.13") });
  } finally {
    setConnected(lab.folder, dead, nic, true);
  }
  for (const name of ["node1", "node3"]) await eventually(() => isConverged(name), 70_000, `${name} has converged`);
}, 180_000);

test("NB-143 the node updates its CalicoNodeStatus", async () => {
  lab.apply([
    {
      apiVersion: API_VERSION,
      kind: "CalicoNodeStatus",
      metadata: { name: "node1" },
      spec: { node: "node1", classes: ["Agent", "BGP", "Routes"], updatePeriodSeconds: 1 },
    },
  ]);
  const read = () =>
    JSON.parse(lab.calicoctl(["get", "caliconodestatus", "node1", "-o", "json"])) as {
      readonly status?: {
        readonly lastUpdated?: string;
        readonly agent: { readonly birdV4: { readonly state?: string } };
        readonly bgp: { readonly numberEstablishedV4: number; readonly numberEstablishedV6: number };
        readonly routes: { readonly routesV4?: readonly { readonly learnedFrom: { readonly sourceType: string } }[] };
      };
    };
  const { status } = await eventually(() => {
    const found = read();
    const bgp = found.status?.bgp; // the families may recover at different times
    return bgp?.numberEstablishedV4 === 2 && bgp.numberEstablishedV6 === 2 && found;
  }, 20_000);
  expect(status).toMatchObject({ agent: { birdV4: { state: "Ready" } } });
  expect(status?.routes.routesV4?.map(({ learnedFrom }) => learnedFrom.sourceType)).toContain("NodeMesh");
}, 40_000);

test("lost pings are counted", async () => {
  await using pings = new Pings(lab);
  await pings.more(5);
  const [, , node] = lab.plan.nodes;
  const [nic] = node?.interfaces ?? [];
  if (node === undefined || nic === undefined) throw new Error("no node3");
  setConnected(lab.folder, node, nic, false);
  await pings.moreOf(5, (flow) => !flow.includes("pod3"));
  setConnected(lab.folder, node, nic, true);
  await pings.more(5);
  const lost = Object.keys(pings.lost());
  expect(lost.length).toBeGreaterThan(0);
  expect(lost.filter((flow) => !flow.includes("pod3"))).toEqual([]);
}, 60_000);

test("routes of a deleted Node are removed, and its calico-node can still be stopped", async () => {
  const gone = lab.record.pods.find((pod) => pod.node === "node3");
  const has = (node: string) => routes(node).some((line) => line.includes("10.77.0.13") || line.includes("fd00:77::d"));
  expect([has("node1"), has("node2")]).toEqual([true, true]);
  lab.calicoctl(["delete", "node", "node3"]);
  await eventually(() => !has("node1") && !has("node2"), 30_000, "routes withdrawn");
  const left = bird("node1", 4, "show protocols");
  expect(left).not.toContain("10_77_0_13");
  expect(gone).toBeDefined();
  const process = lab.host("node3").program("calico-node");
  if (process === undefined) throw new Error("node3 does not run");
  const children = supervised("node3").children.flatMap(({ pid }) => pid ?? []);
  const started = performance.now();
  await stopProcesses([process], 15_000);
  expect(performance.now() - started).toBeLessThan(10_000);
  expect(children.filter((pid) => isRunning(pid))).toEqual([]);
}, 60_000);

function isRunning(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}
