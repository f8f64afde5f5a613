// Runs a tenant's attacks on its neighbour and the nodes for less than a minute, in random order, and prints the seed.
// `make redteam` does the same for ten minutes. Then removes the protections: the same attacks must succeed, which shows
// that they are real.
//   SEED=n SECONDS=n DATAPLANE=nft|iptables IPV6=yes|no
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { down } from "../../src/lab/down.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { attack, renderReport, tryAttacks } from "../redteam/run.ts";
import { buildScene, LAB, TENANT } from "../redteam/scene.ts";
import { sceneOptions } from "../redteam/seed.ts";
import { isAvailable } from "./available.ts";

const canRun = isAvailable && process.getuid?.() === 0 && existsSync(join(import.meta.dir, "../../dist/calico-node"));
if (isAvailable && !canRun) console.log("attacks in a lab need root and the executable (make build): skipped");
const suite = canRun ? test : test.skip; // needs root, the executable and an API server
const seconds = Number(process.env["SECONDS"] || 40);
const { seed, ...options } = sceneOptions(process.env);
const quiet = openTerminal({ quiet: true });
let lab: Lab;

beforeAll(async () => {
  if (!canRun) return;
  console.log(
    `redteam: SEED=${seed} SECONDS=${seconds} DATAPLANE=${options.dataplane} IPV6=${options.ipv6 ? "yes" : "no"}`,
  );
  lab = await buildScene(options, quiet);
}, 240_000);
afterAll(async () => {
  if (canRun) await down(LAB, quiet);
}, 60_000);

suite("no attack of a tenant has an effect on its neighbour or on the nodes", async () => {
  const report = await attack(lab, { seed, seconds });
  console.log(renderReport(report));
  const { successes, problems, counts } = report;
  expect({ successes, problems }).toEqual({ successes: [], problems: [] });
  const notTried = [...counts]
    .filter(([, { refused, ineffective }]) => refused + ineffective === 0)
    .map(([name]) => name);
  expect(notTried).toEqual([]);
}, 300_000);

suite("the same attacks succeed once the rules are flushed and the tenant has more rights", async () => {
  new KubernetesCluster(lab).kubectl([
    ...["create", "clusterrolebinding", "too-many-rights", "--clusterrole=cluster-admin"],
    `--serviceaccount=${TENANT}:tenant`,
  ]);
  const nodes = lab.plan.nodes.map(({ name }) => lab.host(name));
  const felix = nodes.map((host) => {
    const state = readFileSync(`/proc/${host.holder?.pid}/root/run/calico/supervisor.json`, "utf8");
    const { children } = JSON.parse(state) as { readonly children: readonly { name: string; pid: number }[] };
    return children.find(({ name }) => name === "felix")?.pid ?? 0;
  });
  for (const pid of felix) process.kill(pid, "SIGSTOP"); // or it would write the rules again
  try {
    for (const host of nodes) {
      host.run(["nft", "flush", "ruleset"]);
      for (const tool of ["iptables-legacy", "ip6tables-legacy"])
        for (const table of ["raw", "mangle", "filter", "nat"]) host.run([tool, "-t", table, "-F"]);
    }
    const only = [
      "packets to pods that policy closes",
      "packets with a client's or the node's source address",
      "packets to the node's loopback addresses",
      "packets to the node's own and link-local addresses",
      "connections to ports of the nodes",
      "rules with equal hashes",
      "objects of the whole cluster",
      "a pod's status written by its owner",
    ];
    const attempts = await tryAttacks(lab, only);
    expect(attempts.map(({ attack: name, outcome }) => `${name}: ${outcome}`).sort()).toEqual(
      only.map((name) => `${name}: SUCCEEDED`).sort(),
    );
  } finally {
    for (const pid of felix) process.kill(pid, "SIGCONT");
  }
}, 120_000);
