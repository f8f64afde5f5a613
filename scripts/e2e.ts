// `make e2e`: a real Kubernetes cluster, our image and manifests on it, upstream's own NetworkPolicy specs, a rolling
// update under traffic, and what uninstalling leaves. One cluster per combination of dataplane and routing.
//
//   E2E_RUNS=nftables-vxlan,iptables-bgp   only these
//   E2E_FOCUS='should deny egress'         only specs whose name matches
//   E2E_KEEP=1                             leave the last cluster standing (calico lab down --name e2e)
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { down } from "../src/lab/down.ts";
import { KubernetesCluster } from "../src/lab/kubernetes/cluster.ts";
import { obtainPrograms } from "../src/lab/kubernetes/programs.ts";
import { parseLabOptions } from "../src/lab/options.ts";
import { openTerminal } from "../src/lab/terminal.ts";
import { up } from "../src/lab/up.ts";
import { runConformance } from "./e2e/conformance.ts";
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

const terminal = openTerminal();
const reports = join(import.meta.dir, "../.cache/reports");
mkdirSync(reports, { recursive: true });
const wanted = chosenRuns(process.env["E2E_RUNS"]);
const lines: string[] = [];
let isGood = true;
await obtainPrograms(["e2e.test"], terminal);
for (const run of wanted) {
  await down(LAB, openTerminal({ quiet: true }));
  try {
    for (const { line, good } of await oneRun(run)) {
      lines.push(line);
      isGood &&= good;
      terminal.line(line);
    }
  } catch (error) {
    isGood = false;
    lines.push(`${run}: 0 passed, 1 failed: ${error instanceof Error ? error.message : String(error)}`);
    terminal.line(lines.at(-1));
  }
  if (process.env["E2E_KEEP"] !== "1") await down(LAB, openTerminal({ quiet: true }));
}
terminal.line(`\n${lines.join("\n")}`);
process.exit(isGood ? 0 : 1);

async function oneRun(run: Run): Promise<{ line: string; good: boolean }[]> {
  terminal.line(`\n${run}`);
  const lab = await up(parseLabOptions({ name: LAB, kubernetes: true, ...RUNS[run] }), terminal);
  const cluster = new KubernetesCluster(lab);
  const log = join(reports, `e2e-${run}.log`);
  const summary = await runConformance(cluster, {
    focus: process.env["E2E_FOCUS"] ?? "Feature:NetworkPolicy",
    log,
    onSpec: (line) => terminal.line(`  ${line}`),
  });
  for (const failure of summary.failures) terminal.line(`  failed: ${failure} (${log})`);
  const roll = await rollUnderTraffic(cluster);
  const left = await uninstall(cluster);
  for (const trace of left) terminal.line(`  left behind: ${trace}`);
  return [
    { line: renderSummary(`${run}, NetworkPolicy specs`, summary), good: summary.failed === 0 && summary.passed > 0 },
    {
      line: `${run}, rolling update: ${roll.sent} probes, ${roll.lost} lost; ${roll.denied} denied, ${roll.arrived} arrived`,
      good: roll.lost === 0 && roll.arrived === 0,
    },
    { line: `${run}, uninstalled: ${left.length} things left behind`, good: left.length === 0 },
  ];
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
