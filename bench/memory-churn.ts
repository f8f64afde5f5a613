// Measures the memory of calico-node while pods, policies and nodes change: 10,000 pod starts and stops, 5,000 policy edits
// and 1,000 node changes on one node. Prints the PSS (smaps_rollup, after a forced garbage collection) of every process of
// the node at 5 %, 50 % and 100 % of the run; the last total must be at most 1.15 times the first.
//
//   bun bench/memory-churn.ts
//     CHURN_DATASTORE=sqlite|etcd|kubernetes   default etcd
//     CHURN_PODS=10000                         number of pod starts; edits and node changes in proportion
//     CHURN_STATISTICS=FOLDER                  writes the heap statistics of every checkpoint to this folder
//
// The node is a lab host with the real calico-node (Felix, BGP service, BIRD). Each pod start is an ADD of the real CNI
// plugin, served by the node's CNI service, into one of 20 network namespaces; its stop is the DEL. Real veth pairs are
// created and removed, addresses are assigned and released, and Felix programs and removes every endpoint: ADD waits for that. There
// are no containers. Each pod has a new name. A policy edit changes ports, networks and selectors of one of 40
// policies; every fifth replaces the policy by one with a new name. A node change replaces one of ten other nodes, with
// its BGP session, which is never established. The numbers of pods, policies and nodes are equal at every checkpoint.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { down } from "../src/lab/down.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../src/lab/options.ts";
import { datastoreEnvironment } from "../src/lab/programs.ts";
import { changeSettings } from "../src/lab/settings.ts";
import { openTerminal } from "../src/lab/terminal.ts";
import { up } from "../src/lab/up.ts";

const NODE = "node1";
const datastore = process.env["CHURN_DATASTORE"] ?? "etcd";
if (datastore !== "sqlite" && datastore !== "etcd" && datastore !== "kubernetes") {
  console.error(`memory-churn: CHURN_DATASTORE=${datastore}: want sqlite, etcd or kubernetes`);
  process.exit(2);
}
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "churn", nodes: 1, podsPerNode: 0, datastore };
const quiet = openTerminal({ quiet: true });
const statistics = mkdtempSync(join(tmpdir(), "memory-churn-"));
try {
  const lab = await up(options, quiet);
  const preload = join(import.meta.dir, "support/force-gc.ts");
  await changeSettings(lab, NODE, [`BUN_OPTIONS=--preload=${preload}`, `FORCE_GC_FOLDER=${statistics}`]);
  const driver = join(import.meta.dir, "support/churn-node.ts");
  const child = Bun.spawn([...lab.host(NODE).enter([process.execPath, driver])], {
    stdio: ["ignore", "inherit", "inherit"],
    env: {
      ...process.env,
      ...datastoreEnvironment(options, lab.plan),
      NODENAME: NODE,
      FORCE_GC_FOLDER: statistics,
    },
  });
  process.exitCode = await child.exited;
} finally {
  await down(options.name, quiet);
  rmSync(statistics, { recursive: true, force: true });
}
