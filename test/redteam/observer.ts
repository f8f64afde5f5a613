// Monitors the state of the neighbour and of the nodes, in a process that runs until it is killed. Prints one line of JSON per
// change.
import { readFileSync } from "node:fs";
import { Lab } from "../../src/lab/lab.ts";
import { Api } from "./api.ts";
import { changes, neighbourState } from "./neighbour-state.ts";
import { LAB, openScene } from "./scene.ts";

const INTERVAL_MS = 1_000;
/** The timeout of calico-node's liveness probe in the manifests. */
const LIVENESS_SECONDS = 10;

const lab = Lab.open(LAB);
const scene = openScene(lab);
const api = new Api(scene.server, scene.ca, scene.kubeletToken);

/** Returns the processes that calico-node supervises on a node. */
function processes(node: string): Record<string, string> {
  const pid = lab.host(node).holder?.pid;
  const text = readFileSync(`/proc/${pid}/root/run/calico/supervisor.json`, "utf8");
  const state = JSON.parse(text) as {
    readonly pid: number;
    readonly children: readonly { name: string; pid?: number }[];
  };
  return Object.fromEntries([
    [`process calico-node on ${node}`, String(state.pid)],
    ...state.children.map((child) => [`process ${child.name} on ${node}`, String(child.pid)]),
  ]);
}

async function health(node: string): Promise<Record<string, string>> {
  const words = ["-s", "-m", String(LIVENESS_SECONDS), "-o", "/dev/null", "-w", "%{http_code}"];
  const command = lab.host(node).enter(["curl", ...words, "http://127.0.0.1:9099/liveness"]);
  const child = Bun.spawn([...command], { stdout: "pipe", stderr: "ignore" });
  return { [`liveness of Felix on ${node}`]: await new Response(child.stdout).text() };
}

async function look(): Promise<Record<string, string>> {
  const nodes = lab.plan.nodes.map(({ name }) => name);
  return {
    ...(await neighbourState(lab, scene, api)),
    ...Object.assign({}, ...nodes.map(processes), ...(await Promise.all(nodes.map(health)))),
  };
}

const first = await look();
console.log(JSON.stringify({ ready: true }));
for (;;) {
  const changed = changes(first, await look());
  console.log(JSON.stringify({ looked: true, changed }));
  await Bun.sleep(INTERVAL_MS);
}
