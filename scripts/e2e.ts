// Runs the end-to-end tests (`make e2e`) on a real Kubernetes cluster with the image and manifests of calico-ts: `calicoctl
// doctor` on all hosts, the NetworkPolicy specs of Kubernetes, a rolling update under traffic, a crash of the API server, and
// an uninstallation. There is one cluster for each combination of dataplane and routing.
//
//   E2E_RUNS=nftables-vxlan,iptables-bgp   only these
//   E2E_FOCUS='should deny egress'         only specs whose name matches
//   E2E_ROLLS=10                           number of rolling updates after the specs; default 1
//   E2E_KEEP=1                             keep the last cluster (calico lab down --name e2e removes it)
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { down } from "../src/lab/down.ts";
import { LabFolder } from "../src/lab/folder.ts";
import { KubernetesCluster } from "../src/lab/kubernetes/cluster.ts";
import { obtainPrograms } from "../src/lab/kubernetes/programs.ts";
import { Lab } from "../src/lab/lab.ts";
import { resolveLabOptions } from "../src/lab/options.ts";
import { openTerminal } from "../src/lab/terminal.ts";
import { up } from "../src/lab/up.ts";
import { runConformance } from "./e2e/conformance.ts";
import { examineEverywhere } from "./e2e/doctor.ts";
import { findOutageFaults } from "./e2e/outage.ts";
import { rollUnderTraffic } from "./e2e/rolling-update.ts";
import { renderSummary } from "./e2e/summary.ts";
import { uninstall } from "./e2e/uninstall.ts";

const LAB = "e2e";
const RUNS = {
  "nftables-vxlan": { dataplane: "nft", backend: "vxlan" },
  "nftables-bgp": { dataplane: "nft", backend: "bird" },
  "iptables-vxlan": { dataplane: "iptables", backend: "vxlan" },
  "iptables-bgp": { dataplane: "iptables", backend: "bird" },
} as const;
type Run = keyof typeof RUNS;

const ROLLS = Number(process.env["E2E_ROLLS"] ?? "1");
const terminal = openTerminal();
const reports = join(import.meta.dir, "../.cache/reports");
mkdirSync(reports, { recursive: true });
const wanted = chosenRuns(process.env["E2E_RUNS"]);
const lines: Line[] = [];
await obtainPrograms(["e2e.test"], terminal);
for (const run of wanted) {
  await down(LAB, openTerminal({ quiet: true }));
  const runLines: Line[] = [];
  try {
    for await (const line of oneRun(run)) {
      runLines.push(line);
      terminal.line(line.text);
    }
  } catch (error) {
    runLines.push(resultLine(`${run}: ${error instanceof Error ? error.message : String(error)}`, false));
    terminal.line(runLines.at(-1)?.text);
  }
  if (runLines.some(({ failed }) => failed > 0)) saveLogs(run);
  if (process.env["E2E_KEEP"] !== "1") await down(LAB, openTerminal({ quiet: true }));
  lines.push(...runLines);
}
const sum = (of: (line: Line) => number): number => lines.reduce((total, line) => total + of(line), 0);
const [passed, failed] = [sum((line) => line.passed), sum((line) => line.failed)];
terminal.line(`\n${lines.map(({ text }) => text).join("\n")}\n\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

interface Line {
  readonly text: string;
  readonly passed: number;
  readonly failed: number;
}

async function* oneRun(run: Run): AsyncGenerator<Line> {
  terminal.line(`\n${run}`);
  const lab = await up(resolveLabOptions({ name: LAB, kubernetes: true, ...RUNS[run] }), terminal);
  const cluster = new KubernetesCluster(lab);
  const diagnoses = await examineEverywhere(cluster);
  for (const fault of diagnoses) terminal.line(`  ${fault}`);
  yield resultLine(
    `${run}, doctor on hosts, in pods and from outside: ${diagnoses.length} unexpected results`,
    diagnoses.length === 0,
  );
  const log = join(reports, `e2e-${run}.log`);
  const summary = await runConformance(cluster, {
    focus: process.env["E2E_FOCUS"] ?? "Feature:NetworkPolicy",
    log,
    onSpec: (line) => terminal.line(`  ${line}`),
  });
  for (const failure of summary.failures) terminal.line(`  failed: ${failure} (${log})`);
  const { passed, failed } = summary;
  yield { text: renderSummary(`${run}, NetworkPolicy specs`, summary), passed, failed };
  for (let i = 1; i <= ROLLS; i++) {
    const roll = await rollUnderTraffic(cluster, { evidence: join(reports, `e2e-${run}-roll-${i}`) });
    for (const fault of roll.faults) terminal.line(`  ${fault}`);
    yield resultLine(
      `${run}, rolling update: ${roll.sent} probes, ${roll.lost} lost; ${roll.denied} denied, ${roll.arrived} arrived`,
      roll.sent > 0 && roll.lost === 0 && roll.arrived === 0,
    );
  }
  const differences = await findOutageFaults(cluster);
  for (const fault of differences) terminal.line(`  ${fault}`);
  yield resultLine(
    `${run}, API server killed and back: ${differences.length} checks of the pods differ`,
    differences.length === 0,
  );
  const left = await uninstall(cluster);
  for (const trace of left) terminal.line(`  left behind: ${trace}`);
  yield resultLine(`${run}, uninstalled: ${left.length} traces left behind`, left.length === 0);
}

function resultLine(text: string, isGood: boolean): Line {
  return { text, passed: isGood ? 1 : 0, failed: isGood ? 0 : 1 };
}

/** Saves the logs of the cluster before `down` removes it. */
function saveLogs(run: Run): void {
  const folder = join(reports, `e2e-${run}-logs`);
  rmSync(folder, { recursive: true, force: true });
  const lab = new LabFolder(LAB);
  if (!existsSync(dirname(lab.log("any")))) return;
  cpSync(dirname(lab.log("any")), folder, { recursive: true });
  const cluster = new KubernetesCluster(Lab.open(LAB));
  for (const label of ["calico-node", "calico-kube-controllers"]) {
    const words = ["logs", "--namespace=kube-system", `--selector=k8s-app=${label}`, "--all-containers", "--prefix"];
    const { stdout, stderr } = cluster.tryKubectl([...words, "--tail=-1", "--request-timeout=20s"]);
    writeFileSync(join(folder, `${label}.log`), stdout + stderr);
  }
  terminal.line(`  logs: ${folder}`);
}

function chosenRuns(text: string | undefined): Run[] {
  const all = Object.keys(RUNS) as Run[];
  if (text === undefined || text === "") return all;
  return text.split(",").map((word) => {
    const run = all.find((name) => name === word);
    if (run === undefined) throw new Error(`E2E_RUNS=${text}: want some of ${all.join(", ")}`);
    return run;
  });
}
