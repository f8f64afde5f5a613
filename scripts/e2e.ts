// `make e2e`: a real Kubernetes cluster, our image and manifests on it, `calicoctl doctor` everywhere, upstream's own
// NetworkPolicy specs, a rolling update under traffic, an API server that dies, and what uninstalling leaves. One cluster per combination of dataplane
// and routing.
//
//   E2E_RUNS=nftables-vxlan,iptables-bgp   only these
//   E2E_FOCUS='should deny egress'         only specs whose name matches
//   E2E_ROLLS=10                           as many rolling updates after the specs, instead of one
//   E2E_KEEP=1                             leave the last cluster standing (calico lab down --name e2e)
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
import { surviveOutage } from "./e2e/outage.ts";
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
  const own: Line[] = [];
  try {
    for await (const line of oneRun(run)) {
      own.push(line);
      terminal.line(line.text);
    }
  } catch (error) {
    own.push(verdict(`${run}: ${error instanceof Error ? error.message : String(error)}`, false));
    terminal.line(own.at(-1)?.text);
  }
  if (own.some(({ failed }) => failed > 0)) keepLogs(run);
  if (process.env["E2E_KEEP"] !== "1") await down(LAB, openTerminal({ quiet: true }));
  lines.push(...own);
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
  yield verdict(
    `${run}, doctor on hosts, in pods and from outside: ${diagnoses.length} not as wanted`,
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
    yield verdict(
      `${run}, rolling update: ${roll.sent} probes, ${roll.lost} lost; ${roll.denied} denied, ${roll.arrived} arrived`,
      roll.sent > 0 && roll.lost === 0 && roll.arrived === 0,
    );
  }
  const astray = await surviveOutage(cluster);
  for (const fault of astray) terminal.line(`  ${fault}`);
  yield verdict(`${run}, API server killed and back: ${astray.length} looks at the pods differ`, astray.length === 0);
  const left = await uninstall(cluster);
  for (const trace of left) terminal.line(`  left behind: ${trace}`);
  yield verdict(`${run}, uninstalled: ${left.length} things left behind`, left.length === 0);
}

function verdict(text: string, isGood: boolean): Line {
  return { text, passed: isGood ? 1 : 0, failed: isGood ? 0 : 1 };
}

/** What the programs of the cluster said, before `down` takes it away. */
function keepLogs(run: Run): void {
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
    if (run === undefined) throw new Error(`E2E_RUNS=${text}: there are ${all.join(", ")}`);
    return run;
  });
}
